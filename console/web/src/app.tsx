// Frame of the pages: navigation, theme, and the page of the path.
import { signal, effect } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { Accounts } from "./pages/accounts";
import { Audit } from "./pages/audit";
import { Backups } from "./pages/backups";
import { Buckets } from "./pages/buckets";
import { Census } from "./pages/census";
import { Devices } from "./pages/devices";
import { Diagnostics } from "./pages/diagnostics";
import { EventTargets } from "./pages/events";
import { Jobs } from "./pages/jobs";
import { LostIndex } from "./pages/lost-index";
import { Login } from "./pages/login";
import { Objects } from "./pages/objects";
import { Overview } from "./pages/overview";
import { OwnKeys, userOf } from "./pages/own-keys";
import { Rings } from "./pages/rings";
import { Settings } from "./pages/settings";
import { Storage } from "./pages/storage";
import { Workers } from "./pages/workers";
import * as f from "./format";
import { follow, path } from "./route";
import { logout, may, session } from "./session";
import { Transfers } from "./objects/transfers";
import { Guard } from "./rings/build";

interface Page {
  path: string;
  title: string;
  /** Route that the page reads first; undefined for pages of users. */
  route?: string;
  /** True for pages of users with keys of their own. */
  own?: boolean;
  icon: string;
  view: () => JSX.Element;
}

const PAGES: Page[] = [
  { path: "/", title: "Overview", route: "get /admin/v1/status", icon: "M3 12l9-8 9 8v9h-6v-6H9v6H3z", view: Overview },
  { path: "/devices", title: "Devices", route: "get /admin/v1/capacity", icon: "M4 4h16v6H4zM4 14h16v6H4zM7 7h2M7 17h2", view: Devices },
  { path: "/rings", title: "Rings", route: "get /admin/v1/dispersion", icon: "M12 3a9 9 0 109 9M12 8a4 4 0 104 4M21 3l-6 6", view: Rings },
  { path: "/policies", title: "Storage policies", route: "get /admin/v1/policies", icon: "M12 3l9 5-9 5-9-5zM3 12l9 5 9-5M3 16l9 5 9-5", view: Storage },
  { path: "/census", title: "Census", route: "get /admin/v1/jobs", icon: "M9 4h6v3H9zM7 5H5v16h14V5h-2M9 14l2 2 4-5", view: Census },
  { path: "/index", title: "Lost index", route: "get /admin/v1/index", icon: "M4 5h12M4 12h8M4 19h6M16 12l5 5M21 12l-5 5", view: LostIndex },
  { path: "/workers", title: "Workers", route: "get /admin/v1/workers", icon: "M4 20V10M10 20V4M16 20v-8M22 20H2", view: Workers },
  { path: "/jobs", title: "Jobs", route: "get /admin/v1/jobs", icon: "M4 5h16M4 12h10M4 19h7M17 15l4 3-4 3z", view: Jobs },
  { path: "/buckets", title: "Buckets", route: "get /admin/v1/buckets", icon: "M4 6h16l-2 14H6zM4 6c0-3 16-3 16 0", view: Buckets },
  { path: "/objects", title: "Objects", icon: "M12 3l8 4v10l-8 4-8-4V7zM4 7l8 4 8-4M12 11v10", view: Objects },
  { path: "/keys", title: "My keys", own: true, icon: "M15 9a4 4 0 10-4 4l1 1v2h2v2h2v3h4v-4l-6-6z", view: OwnKeys },
  { path: "/accounts", title: "Accounts", route: "get /admin/v1/users", icon: "M12 12a4 4 0 100-8 4 4 0 000 8zM4 21c0-9 16-9 16 0", view: Accounts },
  { path: "/events", title: "Events", route: "get /admin/v1/events", icon: "M18 15V10a6 6 0 10-12 0v5l-2 3h16zM10 21h4", view: EventTargets },
  { path: "/backups", title: "Backups", route: "post /admin/v1/backup", icon: "M12 3v11M8 10l4 4 4-4M4 15v5h16v-5", view: Backups },
  { path: "/settings", title: "Settings", route: "get /admin/v1/settings", icon: "M4 7h10M18 7h2M4 17h2M10 17h10M14 5h4v4h-4zM6 15h4v4H6z", view: Settings },
  { path: "/diagnostics", title: "Diagnostics", route: "get /admin/v1/profile/memory", icon: "M3 12h4l3-8 4 16 3-8h4", view: Diagnostics },
  { path: "/audit", title: "Audit trail", route: "get /admin/v1/audit", icon: "M6 3h9l4 4v14H6zM9 12h7M9 16h7", view: Audit },
];

function stored(): string {
  const theme = localStorage.getItem("martlet-theme");
  return theme === "light" || theme === "dark" ? theme : "auto";
}

const theme = signal(stored());
effect(() => {
  localStorage.setItem("martlet-theme", theme.value);
  document.documentElement.dataset["theme"] = theme.value;
});

const NEXT: Record<string, string> = { auto: "light", light: "dark", dark: "auto" };

/** Returns true if the session has something on a page. */
function shows(page: Page): boolean {
  const s3 = session.value?.s3;
  if (page.own) return !!s3 && s3.expires_ms === null && userOf(s3.arn) !== undefined;
  return page.route === undefined ? !!s3 : may(page.route);
}

function Frame() {
  const pages = PAGES.filter(shows);
  const page = pages.find((one) => one.path === path.value) ?? (path.value === "/" ? pages[0] : undefined);
  const principal = session.value?.principal;
  const View = page?.view;
  // arn:aws:iam::TENANT:user/USER
  const s3 = session.value?.s3;
  const name = s3?.name || s3?.arn.split(":").slice(4).join(" ") || s3?.access_key;
  const kind = s3?.expires_ms ? `role ${s3.arn.split("/")[1] ?? ""} until ${f.date(s3.expires_ms)}` : "access key";
  return (
    <div class="frame">
      <a class="skip" href="#content">Skip to the page</a>
      <nav aria-label="Pages">
        <div class="brand">
          <img src="/icon.svg" alt="" width="28" height="28" />
          <b>Martlet</b>
        </div>
        <ul>
          {pages.map((one) => (
            <li>
              <a href={one.path} aria-current={one === page ? "page" : undefined} onClick={(event) => follow(event, one.path)}>
                <svg viewBox="0 0 24 24" aria-hidden="true"><path d={one.icon} /></svg>
                {one.title}
              </a>
            </li>
          ))}
        </ul>
        <div class="who">
          <span class="name">{principal ? principal.name || principal.key || "root" : name}</span>
          <span class="role">{principal ? principal.role : kind}{principal?.tenant ? ` of ${principal.tenant}` : ""}</span>
          <div class="row">
            <button onClick={() => (theme.value = NEXT[theme.value] ?? "auto")}>Theme: {theme.value}</button>
            <button onClick={() => void logout()}>Sign out</button>
          </div>
          <small>Martlet {session.value?.version}</small>
        </div>
      </nav>
      <main id="content" tabIndex={-1}>
        {View ? <View key={page?.path} /> : <Missing />}
      </main>
      {session.value?.s3 && <Transfers />}
      <Guard />
    </div>
  );
}

function Missing() {
  return (
    <header class="head">
      <div>
        <h1 tabIndex={-1}>No such page</h1>
        <p>{location.pathname} is no page, or this session may not read it.</p>
      </div>
    </header>
  );
}

export function App() {
  useEffect(() => {
    document.documentElement.lang = "en";
  }, []);
  if (session.value === undefined) return <div class="loading page" role="status" aria-label="Loading"><i /><i /><i /></div>;
  return session.value === null ? <Login /> : <Frame />;
}
