// What JupyterLab asks of an extension that has a style and no code: a
// container, which it initializes and from which it then gets "./style".
(() => {
  const address = new URL("text.css", document.currentScript.src);
  const style = () => {
    const link = document.createElement("link");
    link.rel = "stylesheet";
    link.href = address;
    document.head.append(link);
    return {};
  };
  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB["llama-text"] = {init() {}, get: async () => style};
})();
