// Fields for the secret of a backup: a passphrase, or the file of a key. Neither leaves the page.
import { useState } from "preact/hooks";
import { Field, Select } from "../ui/parts";
import { keyOf, passphrase, type Secret } from "./secret";

const KINDS = ["a passphrase", "a key file"] as const;

/** State of the fields. `read` throws a sentence if the secret can't be used. */
export function useSecret(twice: boolean) {
  const [kind, setKind] = useState<string>(KINDS[0]);
  const [text, setText] = useState("");
  const [again, setAgain] = useState("");
  const [file, setFile] = useState<File>();
  const read = async (): Promise<Secret> => {
    if (kind === KINDS[1]) {
      if (!file) throw new Error("choose the file of the key");
      return keyOf(await file.slice(0, 1024).text());
    }
    if (twice && text !== again) throw new Error("the two passphrases differ");
    return passphrase(text);
  };
  const forget = () => {
    setText("");
    setAgain("");
  };
  return { kind, setKind, text, setText, again, setAgain, setFile, twice, read, forget };
}

export function SecretFields({ of, secret }: { of: string; secret: ReturnType<typeof useSecret> }) {
  const auto = secret.twice ? "new-password" : "off";
  return (
    <>
      <Select label={`${of} is sealed by`} value={secret.kind} options={KINDS} on={secret.setKind} />
      {secret.kind === KINDS[0] ? (
        <>
          <Field label={`Passphrase of ${of.toLowerCase()}`} type="password" auto={auto} value={secret.text} on={secret.setText} required hint="12 bytes at least. It stays in this page." />
          {secret.twice && <Field label="Passphrase again" type="password" auto={auto} value={secret.again} on={secret.setAgain} required hint="Without it the backup is lost." />}
        </>
      ) : (
        <div class="field">
          <label for={`key-of-${secret.twice}`}>Key of {of.toLowerCase()}</label>
          <input id={`key-of-${secret.twice}`} type="file" required onChange={(event) => secret.setFile(event.currentTarget.files?.[0])} />
          <small>A file with 64 hexadecimal digits, from <code>openssl rand -hex 32</code>. It stays in this page.</small>
        </div>
      )}
    </>
  );
}
