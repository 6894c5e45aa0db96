import js from "@eslint/js";
import globals from "globals";

export default [
  js.configs.recommended,
  {
    languageOptions: { ecmaVersion: 2023, sourceType: "module", globals: globals.browser },
    rules: {
      complexity: ["error", 15],
      "max-lines": ["error", 300],
      "no-unused-vars": "error",
      "one-var": ["error", "never"],
      "prefer-const": "error",
      eqeqeq: "error",
    },
  },
  { files: ["*.mjs", "*.config.js", "../tests/*.mjs"], languageOptions: { globals: globals.node } },
  { ignores: ["search.js"] },
];
