// One fork, tests in the suite's own order: what is measured is the server, not this machine.
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["*.test.mjs"],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // The report is read by main.rs; nothing is kept between runs.
    cache: false,
  },
});
