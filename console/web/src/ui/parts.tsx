// Parts of which all pages are made.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import type { Live } from "../api";
import { useDialog } from "./dialog";

export type Tone = "good" | "warn" | "bad" | "calm" | "busy";

export function Badge({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  return (
    <span class={`badge ${tone}`}>
      <i class="dot" aria-hidden="true" />
      {children}
    </span>
  );
}

export function Card(props: { title?: string; note?: ComponentChildren; action?: ComponentChildren; wide?: boolean; children: ComponentChildren }) {
  return (
    <section class={props.wide ? "card wide" : "card"}>
      {props.title && (
        <header>
          <h2>{props.title}</h2>
          {props.note && <span class="note">{props.note}</span>}
          {props.action}
        </header>
      )}
      {props.children}
    </section>
  );
}

export function Head(props: { title: string; lead: string; action?: ComponentChildren }) {
  useEffect(() => {
    document.title = `${props.title} · Martlet`;
  }, [props.title]);
  return (
    <header class="head">
      <div>
        <h1 tabIndex={-1}>{props.title}</h1>
        <p>{props.lead}</p>
      </div>
      {props.action}
    </header>
  );
}

export function Meter({ share, peak, mark, label }: { share: number; peak?: number; mark?: number; label: string }) {
  const width = (value: number) => Math.max(0, Math.min(1, value)) * 100;
  // Close to the mark is a warning too: less than a tenth of what fits below it is left.
  const bound = mark ?? Infinity;
  const tone = share >= bound ? "bad" : (peak ?? share) >= bound || share >= bound * 0.9 ? "warn" : "good";
  return (
    <svg class={`meter ${tone}`} viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label={label}>
      <rect class="track" width="100" height="8" />
      {peak !== undefined && peak > share && <rect class="peak" width={width(peak)} height="8" />}
      <rect class="fill" width={width(share)} height="8" />
      {mark !== undefined && <rect class="mark" x={Math.min(99.4, width(mark))} width="0.6" height="8" />}
    </svg>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <svg viewBox="0 0 48 32" aria-hidden="true">
        <path d="M3 20c9 1 13-2 17-8 3-5 8-9 15-9l9 3-8 2c-1 9-8 16-18 18l-9 4 3-6c-4-1-7-2-9-4z" />
      </svg>
      <strong>{title}</strong>
      {children && <p>{children}</p>}
    </div>
  );
}

export function Failure({ text, retry }: { text: string; retry?: () => void }) {
  return (
    <div class="failure" role="alert">
      <span>{text}</span>
      {retry && <button onClick={retry}>Try again</button>}
    </div>
  );
}

/** Content of a live value, or its loading and error states. An error beside a value keeps the value. */
export function Loaded<T>({ live, children }: { live: Live<T>; children: (value: T) => ComponentChildren }) {
  const [value, error] = [live.value.value, live.error.value];
  if (value === undefined && error) return <Failure text={error} retry={() => void live.reload()} />;
  if (value === undefined)
    return (
      <div class="loading" role="status" aria-label="Loading">
        <i />
        <i />
        <i />
      </div>
    );
  return (
    <>
      {error && <Failure text={`${error}. Figures are those of ${new Date(live.at.value).toLocaleTimeString()}.`} />}
      {children(value)}
    </>
  );
}

export function Table({ label, heads, children }: { label: string; heads: (string | { right: string })[]; children: ComponentChildren }) {
  return (
    <div class="scroll" role="region" aria-label={label} tabIndex={0}>
      <table>
        <thead>
          <tr>
            {heads.map((head) =>
              typeof head === "string" ? <th scope="col">{head}</th> : <th scope="col" class="right">{head.right}</th>,
            )}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

export function Field(props: { label: string; hint?: string; value: string; on: (value: string) => void; type?: string; required?: boolean; auto?: string; focus?: boolean; lines?: number }) {
  const id = useId();
  const input = useRef<HTMLInputElement>(null);
  const area = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    if (props.focus) (input.current ?? area.current)?.focus();
  }, []);
  if (props.lines !== undefined) {
    return (
      <div class="field">
        <label for={id}>{props.label}</label>
        <textarea id={id} ref={area} rows={props.lines} value={props.value} spellcheck={false} onInput={(event) => props.on(event.currentTarget.value)} />
      </div>
    );
  }
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      <input
        id={id}
        ref={input}
        type={props.type ?? "text"}
        value={props.value}
        required={props.required ?? false}
        // A dialog that opens gives its first field the focus, unless another one has this.
        autofocus={props.focus ?? false}
        autocomplete={(props.auto ?? "off") as JSX.InputHTMLAttributes<HTMLInputElement>["autocomplete"]}
        spellcheck={false}
        autocapitalize="none"
        aria-describedby={props.hint ? `${id}-hint` : undefined}
        onInput={(event) => props.on(event.currentTarget.value)}
      />
      {props.hint && <small id={`${id}-hint`}>{props.hint}</small>}
    </div>
  );
}

export function Select(props: { label: string; value: string; options: readonly string[]; on: (value: string) => void; required?: boolean }) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      <select id={id} value={props.value} required={props.required ?? false} onChange={(event) => props.on(event.currentTarget.value)}>
        {props.options.map((option) => (
          <option value={option}>{option}</option>
        ))}
      </select>
    </div>
  );
}

/** Choice that is made or not. */
export function Check(props: { label: string; hint?: string; on: boolean; set: (on: boolean) => void; required?: boolean }) {
  return (
    <label class="check">
      <input type="checkbox" checked={props.on} required={props.required ?? false} onChange={(event) => props.set(event.currentTarget.checked)} />
      <span>{props.label}{props.hint && <small>{props.hint}</small>}</span>
    </label>
  );
}

/** Text to be copied, with a button where the browser allows that. */
export function Copy({ label, text }: { label: string; text: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setDone(true);
  };
  // Browsers have a clipboard for pages over TLS and of this machine alone.
  const can = "clipboard" in navigator;
  return (
    <div class="copying">
      <pre class="content copy" tabIndex={0} aria-label={label}>{text}</pre>
      {can && <button type="button" onClick={() => void copy()}>{done ? "Copied" : "Copy"}</button>}
    </div>
  );
}

/** Returns a function that is true until the caller's component is removed: for replies that come late. */
export function useMounted(): () => boolean {
  const mounted = useRef(true);
  useEffect(() => () => void (mounted.current = false), []);
  return () => mounted.current;
}

/**
 * Dialog that stays open, with the server's sentence, until its change has succeeded. Its button is never disabled, since a
 * disabled one loses the focus.
 */
export function Ask(props: { title: string; verb: string; danger?: boolean; wide?: boolean; run: () => Promise<void>; close: () => void; children?: ComponentChildren }) {
  const dialog = useDialog();
  const running = useRef(false);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const title = useId();
  const isOpen = useMounted();
  const submit = async (event: Event) => {
    event.preventDefault();
    if (running.current) return;
    running.current = true;
    setBusy(true);
    try {
      await props.run();
      // A dialog that was cancelled must not close the next one.
      if (isOpen()) props.close();
    } catch (thrown) {
      setError(thrown instanceof Error ? thrown.message : String(thrown));
    }
    running.current = false;
    setBusy(false);
  };
  return (
    <dialog ref={dialog} class={props.wide ? "wide" : undefined} aria-labelledby={title} onClose={props.close}>
      <form onSubmit={(event) => void submit(event)}>
        <h2 id={title}>{props.title}</h2>
        {props.children}
        {error && <Failure text={error} />}
        <footer>
          <button type="button" onClick={() => dialog.current?.close()}>Cancel</button>
          <button class={props.danger ? "danger" : "primary"} aria-disabled={busy}>{props.verb}</button>
        </footer>
      </form>
    </dialog>
  );
}

/** Dialog with a new secret, which is shown this once. */
export function Secret({ name, id, secret, close }: { name: string; id: string; secret: string; close: () => void }) {
  const dialog = useDialog();
  const title = useId();
  return (
    <dialog ref={dialog} aria-labelledby={title} onClose={close}>
      <h2 id={title}>{name}</h2>
      <p>The secret is shown this once, and can't be read again. Keep both now.</p>
      <dl class="pairs">
        <dt>Key</dt>
        <dd><code class="copy">{id}</code></dd>
        <dt>Secret</dt>
        <dd><code class="copy">{secret}</code></dd>
      </dl>
      <footer>
        <button class="primary" onClick={() => dialog.current?.close()}>I have kept it</button>
      </footer>
    </dialog>
  );
}
