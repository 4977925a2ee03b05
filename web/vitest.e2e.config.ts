import { defineConfig } from "vitest/config";

/** What a real browser says of the pages that a real binary serves. */
export default defineConfig({
  test: {
    environment: "node",
    include: ["e2e/**/*.test.ts"],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // One browser at a time: the machine may be small.
    fileParallelism: false,
  },
});
