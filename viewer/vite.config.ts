import { defineConfig } from "vite";

export default defineConfig({
  base: "./",
  build: {
    outDir: "../nemo_gym/viewer/page",
    emptyOutDir: true,
    // The notices that the licences of the bundled packages ask for.
    license: { fileName: "licenses.md" },
    // Inlined data: addresses would need exceptions in the content security policy.
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 1000,
    rollupOptions: {
      // One script and one style sheet, which `ng view --export` puts into its file. Names without hashes, so that a
      // rebuild changes only the files whose content changed.
      output: { codeSplitting: false, entryFileNames: "app.js", assetFileNames: "app[extname]" },
    },
  },
  server: { proxy: { "/api": "http://127.0.0.1:8765" } },
});
