import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const root = fileURLToPath(new URL(".", import.meta.url));
const { exports } = JSON.parse(readFileSync(new URL("package.json", import.meta.url), "utf8")) as {
  exports: Record<string, { default?: string } | string>;
};

/** `chorale/x` in a test means the source, so that a test never runs against an old build. */
const alias = Object.entries(exports).flatMap(([subpath, target]) =>
  typeof target === "string" || target.default === undefined
    ? []
    : [
        {
          find: new RegExp(`^${subpath === "." ? "chorale" : `chorale${subpath.slice(1)}`}$`),
          replacement: root + target.default.replace("./dist/", "src/").replace(/\.js$/, ".ts"),
        },
      ],
);

export default defineConfig({
  resolve: { alias },
  test: {
    include: ["src/**/*.test.ts", "test/**/*.test.ts", "examples/**/*.test.ts", "bench/**/*.test.ts"],
    // Fixtures are recordings of machines, with links that lead anywhere.
    exclude: ["**/node_modules/**", "test/fixtures/**"],
    globalSetup: ["test/global-setup.ts"],
    testTimeout: 30_000,
    hookTimeout: 30_000,
    pool: "forks",
    maxWorkers: 2,
  },
});
