// Tags of a bucket, and the encryption of its new objects.
import { useState } from "preact/hooks";
import { Refusal, useLive } from "../api";
import { checked, send, setting } from "../s3/client";
import { child, children, element, text } from "../s3/xml";
import { Ask, Badge, Card, Field, Loaded } from "../ui/parts";

type Pair = [string, string];

/** Pairs of a text with one NAME=VALUE on each line. */
export function pairsOf(lines: string): Pair[] {
  return lines.split("\n").filter((line) => line.trim() !== "").map((line): Pair => {
    const at = line.indexOf("=");
    if (at < 0) throw new Refusal(`"${line}" is no tag: write NAME=VALUE`);
    return [line.slice(0, at), line.slice(at + 1)];
  });
}

export function BucketTags({ bucket }: { bucket: string }) {
  const load = async (): Promise<Pair[]> => {
    const document = await setting({ bucket }, { tagging: "" }, ["NoSuchTagSet"]);
    const set = document && child(document, "TagSet");
    return set ? children(set, "Tag").map((one): Pair => [text(one, "Key"), text(one, "Value")]) : [];
  };
  const live = useLive(load, 0, []);
  const [lines, setLines] = useState<string>();
  const save = async () => {
    const pairs = pairsOf(lines ?? "");
    const set = pairs.map(([name, value]) => element("Tag", [element("Key", name), element("Value", value)]));
    if (pairs.length === 0) await send("DELETE", { bucket }, { query: { tagging: "" } });
    else await send("PUT", { bucket }, { query: { tagging: "" }, ...checked(element("Tagging", [element("TagSet", set)])) });
    await live.saved(pairs);
  };
  return (
    <Card title="Tags of the bucket">
      <Loaded live={live}>
        {(pairs) => (
          <>
            {pairs.length === 0 ? <p class="quiet">No tags.</p> : <dl class="pairs text">{pairs.map(([name, value]) => <><dt>{name}</dt><dd>{value}</dd></>)}</dl>}
            <div class="row"><button onClick={() => setLines(pairs.map((pair) => pair.join("=")).join("\n"))} aria-label="Change the tags of the bucket">Change</button></div>
          </>
        )}
      </Loaded>
      {lines !== undefined && (
        <Ask title={`Tags of ${bucket}`} verb="Save" run={save} close={() => setLines(undefined)}>
          <Field label="One NAME=VALUE on each line" value={lines} on={setLines} lines={5} focus />
        </Ask>
      )}
    </Card>
  );
}

const ENCRYPTED = element("ServerSideEncryptionConfiguration", [
  element("Rule", [element("ApplyServerSideEncryptionByDefault", [element("SSEAlgorithm", "AES256")])]),
]);

export function BucketEncryption({ bucket }: { bucket: string }) {
  const load = async (): Promise<boolean> => (await setting({ bucket }, { encryption: "" }, ["ServerSideEncryptionConfigurationNotFoundError"])) !== undefined;
  const live = useLive(load, 0, []);
  const [wanted, setWanted] = useState<boolean>();
  const verb = wanted ? "Encrypt new objects" : "Stop encrypting";
  const save = async () => {
    await send(wanted ? "PUT" : "DELETE", { bucket }, { query: { encryption: "" }, ...(wanted && checked(ENCRYPTED)) });
    await live.saved(wanted ?? false);
  };
  return (
    <Card title="Encryption">
      <Loaded live={live}>
        {(encrypts) => (
          <div class="row">
            <Badge tone={encrypts ? "good" : "calm"}>{encrypts ? "AES256 for new objects" : "as each request says"}</Badge>
            <button onClick={() => setWanted(!encrypts)}>{encrypts ? "Stop encrypting" : "Encrypt new objects"}</button>
          </div>
        )}
      </Loaded>
      {wanted !== undefined && (
        <Ask title={`${verb} of ${bucket}`} verb={verb} run={save} close={() => setWanted(undefined)}>
          <p>{wanted ? "New objects whose request names no encryption are encrypted by a key of the server. They can't be read in place. Objects that exist stay as they are." : "New objects whose request names no encryption are stored in clear. Objects that exist stay as they are."}</p>
        </Ask>
      )}
    </Card>
  );
}
