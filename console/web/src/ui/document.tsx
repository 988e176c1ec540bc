// Editor of a JSON document: shows the first fault while a text is typed, the server's words with their place, and never
// loses what was typed.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { JsonFault, placeOf } from "../json/scan";
import { advice, faultOf, locate } from "../json/policy";
import { draft, drop, keep } from "./drafts";
import { Failure, useMounted } from "./parts";

/** Text in the editor, and a way to put another one there. */
export interface Adding {
  text: string;
  put: (text: string) => void;
}

interface Fault {
  sentence: string;
  advice: string;
  at: number | undefined;
}

interface Props {
  label: string;
  /** Name of the document, under which a text is kept until it is saved. */
  id: string;
  /** Document that the server has, or an empty text. */
  stored: string;
  /** Text for a document that doesn't exist yet. */
  template: string;
  /** Returns the document that the server has now. */
  current: () => Promise<string>;
  save: (text: string) => Promise<void>;
  close: () => void;
  /** Form that changes the text. */
  form?: (props: Adding) => ComponentChildren;
}

/** Document with one value on each line, if it is JSON. */
export function pretty(text: string): string {
  try {
    return text.includes("\n") ? text : JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** Line of a fault, with a mark below it. */
function excerpt(text: string, at: number): string {
  const { line, column } = placeOf(text, at);
  const lines = text.split("\n");
  const from = Math.max(0, column - 24);
  const shown = (lines[line - 1] ?? "").slice(from, from + 80).replace(/\t/g, " ");
  const number = `${line} │ `;
  return `${number}${shown}\n${" ".repeat(number.length + column - 1 - from)}▲`;
}

export function DocumentEditor({ label, id, stored, template, current, save, close, form }: Props) {
  const shown = stored ? pretty(stored) : template;
  const [text, setText] = useState(() => draft(id)?.text ?? shown);
  const [older, setOlder] = useState(() => (draft(id)?.text ?? shown) !== shown);
  const [fault, setFault] = useState<Fault>();
  const [busy, setBusy] = useState(false);
  const [known, setKnown] = useState(() => {
    const kept = draft(id);
    return kept ? kept.base : stored;
  });
  const [other, setOther] = useState<string>();
  const area = useRef<HTMLTextAreaElement>(null);
  const field = useId();
  const isOpen = useMounted();
  useEffect(() => area.current?.focus(), []);
  const typed = (value: string) => {
    setText(value);
    keep(id, { text: value, base: known });
    setFault(undefined);
  };
  const point = (at: number | undefined) => {
    const element = area.current;
    if (at === undefined || !element) return;
    element.focus();
    element.setSelectionRange(at, Math.min(text.length, at + 1));
    // Lines of the field have one height.
    const height = element.scrollHeight / Math.max(1, text.split("\n").length);
    element.scrollTop = Math.max(0, (placeOf(text, at).line - 4) * height);
  };
  const refuse = (sentence: string, at: number | undefined, more: string) => {
    setFault({ sentence, at, advice: more });
    point(at);
  };
  const submit = async (event: Event) => {
    event.preventDefault();
    if (busy) return;
    const broken = faultOf(text);
    if (broken) return refuse(broken.message, broken.at, "");
    setBusy(true);
    try {
      const now = await current();
      if (now !== known) {
        setKnown(now);
        setOther(now);
        refuse("The document was changed by another operator meanwhile. Saving again replaces that change.", undefined, "");
      } else {
        await save(text);
        drop(id);
        // An editor that was closed must not close the next one.
        if (isOpen()) close();
      }
    } catch (thrown) {
      const sentence = thrown instanceof Error ? thrown.message : String(thrown);
      refuse(sentence, locate(text, sentence), advice(sentence));
    }
    setBusy(false);
  };
  const live = faultOf(text);
  return (
    <form class="change document" onSubmit={(event) => void submit(event)}>
      {older && (
        <p class="row farewell" role="status">
          <span>This text was typed earlier and not saved.</span>
          <button type="button" onClick={() => { drop(id); setText(shown); setKnown(stored); setOlder(false); setFault(undefined); }}>Drop it and show the stored document</button>
        </p>
      )}
      <div class="field">
        <label for={field}>{label}</label>
        <textarea id={field} ref={area} rows={18} value={text} readOnly={busy} spellcheck={false} aria-describedby={`${field}-state`} aria-invalid={fault !== undefined} onInput={(event) => typed(event.currentTarget.value)} />
      </div>
      <p class="note" id={`${field}-state`} aria-live="polite">{state(text, live)}</p>
      {form?.({ text, put: typed })}
      {fault && (
        <div class="fault">
          <Failure text={fault.sentence} />
          {fault.at !== undefined && <pre class="content" tabIndex={0} aria-label="Place of the fault">{excerpt(text, fault.at)}</pre>}
          {fault.advice && <p>{fault.advice}</p>}
        </div>
      )}
      {other !== undefined && <pre class="content" tabIndex={0} aria-label="Document of the other operator">{other ? pretty(other) : "The document was removed."}</pre>}
      <div class="row">
        <button class="primary" aria-disabled={busy}>Save</button>
        <button type="button" onClick={close}>Close</button>
        <span class="note">A text that is not saved is kept in this tab.</span>
      </div>
    </form>
  );
}

function state(text: string, fault: JsonFault | undefined): string {
  if (!fault) return `${new TextEncoder().encode(text).length} bytes of JSON.`;
  const { line, column } = placeOf(text, fault.at);
  return `Line ${line}, column ${column}: ${fault.message}.`;
}
