// Chromium of tests: the console in several looks, as people use it.
import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
export const SHOTS = process.env.CONSOLE_SHOTS ?? join(homedir(), ".cache/martlet/console-shots");
export const LOOKS = [
  { name: "light", colorScheme: "light", viewport: { width: 1280, height: 860 } },
  { name: "dark", colorScheme: "dark", viewport: { width: 1280, height: 860 } },
  { name: "phone", colorScheme: "light", viewport: { width: 375, height: 812 } },
  { name: "phone-dark", colorScheme: "dark", viewport: { width: 375, height: 812 } },
];
let browser;
let home;

export async function launch(url) {
  mkdirSync(SHOTS, { recursive: true });
  home = url;
  const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
  browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
}

export async function close() {
  await browser?.close();
}

/**
 * Serves pages from a folder in place of those in the binary, with the headers of the server, so that a change of a page is
 * tested without a compiler.
 */
async function fromFolder(context, folder) {
  const types = { js: "text/javascript", css: "text/css", svg: "image/svg+xml", html: "text/html; charset=utf-8" };
  await context.route(/.*/, async (route) => {
    const { pathname } = new URL(route.request().url());
    if (route.request().method() !== "GET" || /^\/(api|s3|session|links|own|login)(\/|$)/.test(pathname)) return route.fallback();
    const asked = /\.[a-z]+$/.test(pathname) ? pathname.slice(1) : "index.html";
    // After a redirect, browsers have the index of the binary, whose files have other hashes in their names.
    const [, stem, kind] = /^(.*?)(?:-[0-9A-Z]{8})?(\.[a-z]+)$/.exec(asked);
    const name = readdirSync(folder).find((one) => one === asked) ?? readdirSync(folder).find((one) => one.startsWith(`${stem}-`) && one.endsWith(kind));
    if (name === undefined) return route.fallback();
    const { "content-length": _, "content-encoding": __, ...headers } = (await route.fetch()).headers();
    return route.fulfill({ status: 200, headers: { ...headers, "content-type": types[name.split(".").pop()] }, body: readFileSync(join(folder, name)) });
  });
}

/** Opens the console. A violation of the policy or an error of a script fails the test. */
export async function open(look = LOOKS[0], url = home) {
  const context = await browser.newContext({ acceptDownloads: true, colorScheme: look.colorScheme, viewport: look.viewport, reducedMotion: "reduce" });
  // Longer than the 30 seconds of Playwright: a machine that compiles meanwhile is slow.
  context.setDefaultTimeout(60_000);
  if (process.env.CONSOLE_DIST) await fromFolder(context, process.env.CONSOLE_DIST);
  const page = await context.newPage();
  const problems = [];
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("console", (message) => {
    // Refusals that a test provokes are shown by the page, and logged by the browser.
    if (message.type() === "error" && !/Failed to load resource/.test(message.text())) problems.push(message.text());
  });
  await page.goto(url);
  return { context, page, problems };
}

export async function signIn(page, { key, secret }) {
  await page.getByLabel("Key", { exact: true }).fill(key);
  await page.getByLabel("Secret").fill(secret);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("navigation", { name: "Pages", exact: true }).waitFor();
}

/** Goes to a page by its link, as people do, and waits for its content. */
export async function visit(page, path) {
  await page.locator(`nav a[href="${path}"]`).click();
  await page.locator("main h1").waitFor();
  await page.waitForFunction(() => !document.querySelector("main .loading"));
}

/** Gives an open page another look. */
export async function wear(page, { colorScheme, viewport }) {
  await page.emulateMedia({ colorScheme });
  await page.setViewportSize(viewport);
}

/** Pixels by which a page, or its open dialog, is wider than the screen. */
export async function excess(page) {
  return await page.evaluate(() => {
    const dialogs = [...document.querySelectorAll("dialog[open]")].map((dialog) => Math.max(dialog.scrollWidth - dialog.clientWidth, dialog.getBoundingClientRect().right - innerWidth));
    return Math.max(document.documentElement.scrollWidth - innerWidth, ...dialogs);
  });
}

/** Violations of axe's rules in the page, or in a part of it. */
export async function violations(page, within) {
  // Playwright evaluates through the debugger, which the policy of the page does not bind.
  if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(AXE);
  const found = await page.evaluate((within) => window.axe.run(within ?? document, { resultTypes: ["violations"] }), within);
  return found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html).join(" | ")}`);
}
