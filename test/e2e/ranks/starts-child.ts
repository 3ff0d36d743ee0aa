/** Every rank has started a process by a shell, and waits. */
import { exec } from "node:child_process";

export default async function run(): Promise<void> {
  console.log(`child ${exec("sleep 60; true").pid}`);
  await new Promise((resolve) => setTimeout(resolve, 60_000));
}
