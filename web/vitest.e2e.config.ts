import { defineConfig } from "vitest/config";

/** Tests the pages of the real binary in a real browser. */
export default defineConfig({
  test: {
    environment: "node",
    // make pictures runs the script that takes the pictures of the docs.
    include: [process.env.HEADGATE_PICTURES ? "e2e/pictures.ts" : "e2e/**/*.test.ts"],
    // Generous, because the machine may be small and busy.
    testTimeout: 240_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 60_000 } },
    // One browser at a time: the machine may be small.
    fileParallelism: false,
  },
});
