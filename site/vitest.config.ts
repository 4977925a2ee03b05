import { defineConfig } from "vitest/config";

/** Tests the parts of the build, and the built site in a real browser. */
export default defineConfig({
  test: {
    environment: "node",
    include: ["**/*.test.ts"],
    // Generous, because the machine may be small and busy.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 30_000 } },
    fileParallelism: false,
  },
});
