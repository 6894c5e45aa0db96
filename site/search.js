// In an excerpt a formula is text, as plain.py writes it, and no page begins with its line of links.
const to_text = Search.htmlToText;
Search.htmlToText = (html, ...rest) => to_text(html
  .replace(/<math\b[^>]*?alttext="([^"]*)".*?<\/math>/gs, "$1")
  .replace(/<div class="no-search.*?<\/div>/gs, ""), ...rest);

// The beginning of a name finds the name: apply_rotary, whose stem would end in -ri, finds apply_rotary_emb.
const English = Stemmer;
Stemmer = function () {
  this.stemWord = word => {
    let stem = new English().stemWord(word);
    while (word.includes("_") && !word.startsWith(stem)) stem = stem.slice(0, -1);
    return stem;
  };
};

Documentation.TRANSLATIONS["Your search did not match any documents. Please make sure that all words are spelled correctly and that you've selected enough categories."] =
  "Nothing found. Try fewer words, or only the beginning of a word.";
