// In the excerpts of a search a formula is its TeX: its plain text would lose roots and bars.
const to_text = Search.htmlToText;
Search.htmlToText = (html, ...rest) =>
  to_text(html.replace(/<math\b[^>]*?alttext="([^"]*)".*?<\/math>/gs, "$1"), ...rest);
