import { defineConfig } from "vitest/config";

/** What a real browser says of the pages that a real binary serves. */
export default defineConfig({
  test: {
    environment: "node",
    include: ["e2e/**/*.test.ts"],
    // The machine may be small, and busy: nothing here is about how fast it is.
    testTimeout: 240_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 60_000 } },
    // What fails once is tried again, and told: a browser has bad days.
    retry: 1,
    // One browser at a time: the machine may be small.
    fileParallelism: false,
  },
});
