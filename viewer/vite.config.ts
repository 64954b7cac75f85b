import { defineConfig } from "vite";

const OUT = "../nemo_gym/viewer/page";

// Names without hashes, so that a rebuild changes only the files whose content changed.
const page = {
  emptyOutDir: true,
  // The notices that the licences of the bundled packages ask for.
  license: { fileName: "licenses.md" },
  rollupOptions: {
    output: {
      entryFileNames: "assets/[name].js",
      chunkFileNames: "assets/[name].js",
      assetFileNames: "assets/[name][extname]",
    },
  },
};

// The same program in one script and one style sheet: `ng view --export` puts both into its file, which can load nothing.
const report = {
  emptyOutDir: false,
  cssCodeSplit: false,
  rollupOptions: {
    input: "src/main.tsx",
    output: { codeSplitting: false, entryFileNames: "report.js", assetFileNames: "report[extname]" },
  },
};

export default defineConfig(({ mode }) => ({
  base: "./",
  build: {
    outDir: OUT,
    // Inlined data: addresses would need exceptions in the content security policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // The program of a report is one script on purpose.
    chunkSizeWarningLimit: 1000,
    ...(mode === "report" ? report : page),
  },
  server: { proxy: { "/api": "http://127.0.0.1:8765" } },
}));
