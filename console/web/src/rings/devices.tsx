// Devices of a builder: a table with a filter, and the changes of those that are chosen.
import { useState } from "preact/hooks";
import * as f from "../format";
import type { Schemas } from "../session";
import { Ask, Badge, Card, Empty, Field, Table } from "../ui/parts";
import { Slices } from "../ui/pager";
import { parseCount } from "../units";
import { add, devicesOf, weightOf, type Reply, type Step } from "./builder";

type Device = Schemas["BuilderDeviceLine"];
type Dialog = "add" | "list" | "weight" | "info" | "drain" | "remove";

const placeOf = (device: Device): string => `r${device.region}z${device.zone}-${device.node}/${device.name}`;
const idOf = (device: Device): string => `d${device.device}`;

/** Names of devices for a sentence. */
function names(devices: Device[]): string {
  const shown = devices.slice(0, 8).map((device) => `${idOf(device)} (${placeOf(device)})`).join(", ");
  return devices.length > 8 ? `${shown} and ${devices.length - 8} more` : shown;
}

export function Devices({ reply }: { reply: Reply }) {
  const [filter, setFilter] = useState("");
  const [chosen, setChosen] = useState<ReadonlySet<number>>(new Set());
  const [dialog, setDialog] = useState<Dialog>();
  const words = filter.trim().toLowerCase();
  const matches = (device: Device) => [idOf(device), placeOf(device), device.address, device.meta].some((text) => text.toLowerCase().includes(words));
  const found = words ? reply.devices.filter(matches) : reply.devices;
  const picked = reply.devices.filter((device) => chosen.has(device.device) && !device.removed);
  const choose = (device: Device) => {
    const next = new Set(chosen);
    if (!next.delete(device.device)) next.add(device.device);
    setChosen(next);
  };
  const close = () => setDialog(undefined);
  const done = () => setChosen(new Set());
  const of = { devices: picked, close, done };
  return (
    <Card title="Devices" note={`${f.count(reply.devices.length)} in this builder`} wide>
      <div class="row">
        <button onClick={() => setDialog("add")}>Add a device</button>
        <button onClick={() => setDialog("list")}>Add many</button>
        <button disabled={picked.length === 0} onClick={() => setDialog("weight")}>Set the weight</button>
        <button disabled={picked.length !== 1} onClick={() => setDialog("info")}>Change the address or name</button>
        <button disabled={picked.length === 0} onClick={() => setDialog("drain")}>Drain</button>
        <button disabled={picked.length === 0} onClick={() => setDialog("remove")}>Remove</button>
        <span class="note" role="status">{picked.length === 0 ? "Choose devices in the table to change them." : `${picked.length} chosen`}</span>
      </div>
      {reply.devices.length === 0 ? (
        <Empty title="No devices yet">Add at least as many as the ring has replicas.</Empty>
      ) : (
        <>
          <Field label="Device, place, address or metadata" value={filter} on={setFilter} />
          <div class="row">
            <button disabled={found.length === 0} onClick={() => setChosen(new Set([...chosen, ...found.filter((device) => !device.removed).map((device) => device.device)]))}>{words ? "Choose all that match" : "Choose all"}</button>
            <button disabled={chosen.size === 0} onClick={done}>Choose none</button>
          </div>
          <Slices items={found} size={50} label="the devices">
            {(shown) => (
              <Table label="Devices of the builder" heads={["Device", "Place", "Address", { right: "Weight" }, { right: "Share" }, { right: "Holds" }, { right: "Deviation" }, "State"]}>
                {shown.map((device) => (
                  <Row device={device} chosen={chosen.has(device.device)} choose={() => choose(device)} />
                ))}
              </Table>
            )}
          </Slices>
        </>
      )}
      {dialog === "add" && <AddOne close={close} />}
      {dialog === "list" && <AddMany close={close} />}
      {dialog === "weight" && <Weight {...of} />}
      {dialog === "info" && picked[0] && <Info device={picked[0]} close={close} done={done} />}
      {dialog === "drain" && <Drain {...of} />}
      {dialog === "remove" && <Remove {...of} />}
    </Card>
  );
}

function Row({ device, chosen, choose }: { device: Device; chosen: boolean; choose: () => void }) {
  const figure = (value: number | null | undefined, digits: number) => (value === null || value === undefined ? "–" : value.toLocaleString("en", { maximumFractionDigits: digits }));
  return (
    <tr class={chosen ? "chosen" : undefined}>
      <th scope="row">
        <label class="pick"><input type="checkbox" checked={chosen} disabled={device.removed} onChange={choose} /> {idOf(device)}</label>
      </th>
      <td class="wrap">{placeOf(device)}{device.meta && <p class="quiet">{device.meta}</p>}</td>
      <td class="wrap">{device.address}</td>
      <td class="right">{device.weight}</td>
      <td class="right">{figure(device.desired, 1)}</td>
      <td class="right">{figure(device.replicas, 0)}</td>
      <td class="right">{device.deviation === null || device.deviation === undefined ? "–" : `${device.deviation.toFixed(1)} %`}</td>
      <td>
        {device.removed && <Badge tone="bad">removed</Badge>}
        {device.draining && <Badge tone="busy">draining</Badge>}
        {!device.removed && device.weight === 0 && <Badge tone="warn">empties</Badge>}
      </td>
    </tr>
  );
}

function AddOne({ close }: { close: () => void }) {
  const [region, setRegion] = useState("1");
  const [zone, setZone] = useState("1");
  const [node, setNode] = useState("");
  const [address, setAddress] = useState("");
  const [name, setName] = useState("");
  const [weight, setWeight] = useState("");
  const [meta, setMeta] = useState("");
  const run = async () => {
    const place = `r${region.trim()}z${zone.trim()}-${node.trim()}@${address.trim()}/${name.trim()}`;
    await add([{ step: "add", devices: [{ place, weight: weightOf(weight), meta }] }]);
  };
  return (
    <Ask title="Add a device" verb="Add" run={run} close={close}>
      <Field label="Region" value={region} on={setRegion} required hint="A site. Replicas go to different regions first, then zones, then nodes." />
      <Field label="Zone" value={zone} on={setZone} required hint="A room, a rack or a power feed of the region" />
      <Field label="Node" value={node} on={setNode} required focus hint="Name of the machine" />
      <Field label="Address of the node" value={address} on={setAddress} required hint="HOST:PORT of its internal port" />
      <Field label="Name of the device" value={name} on={setName} required hint="As in the settings of its node, such as sdb" />
      <Field label="Weight" value={weight} on={setWeight} required hint="Its size in GB is a good weight" />
      <Field label="Metadata" value={meta} on={setMeta} hint="Free text" />
    </Ask>
  );
}

function AddMany({ close }: { close: () => void }) {
  const [text, setText] = useState("");
  const run = async () => await add([{ step: "add", devices: devicesOf(text) }]);
  return (
    <Ask title="Add many devices" verb="Add" run={run} close={close} wide>
      <p>One device on each line: place, weight, and metadata if there is any, such as <code>r1z2-alpha@10.0.0.5:6200/sdb 4000</code>.</p>
      <Field label="Devices" value={text} on={setText} lines={12} focus />
    </Ask>
  );
}

interface Chosen {
  devices: Device[];
  close: () => void;
  done: () => void;
}

function Weight({ devices, close, done }: Chosen) {
  const [weight, setWeight] = useState(devices.length === 1 ? String(devices[0]?.weight) : "");
  const run = async () => {
    const value = weightOf(weight);
    await add(devices.map((device): Step => ({ step: "set-weight", devices: idOf(device), weight: value })));
    done();
  };
  return (
    <Ask title="Set the weight" verb="Set" run={run} close={close}>
      <p>{names(devices)}</p>
      <Field label="Weight" value={weight} on={setWeight} required focus hint="Share of the data relative to other devices" />
    </Ask>
  );
}

function Info({ device, close, done }: { device: Device; close: () => void; done: () => void }) {
  const [address, setAddress] = useState(device.address);
  const [name, setName] = useState(device.name);
  const [meta, setMeta] = useState(device.meta);
  const run = async () => {
    const changed = (now: string, before: string) => (now === before ? null : now);
    await add([{ step: "set-info", device: idOf(device), address: changed(address, device.address), name: changed(name, device.name), meta: changed(meta, device.meta) }]);
    done();
  };
  return (
    <Ask title="Change the address or name" verb="Change" run={run} close={close}>
      <p>{names([device])}. The address is that of all devices of its node. No data moves.</p>
      <Field label="Address of the node" value={address} on={setAddress} required />
      <Field label="Name of the device" value={name} on={setName} required />
      <Field label="Metadata" value={meta} on={setMeta} />
    </Ask>
  );
}

function Drain({ devices, close, done }: Chosen) {
  const [steps, setSteps] = useState("4");
  const run = async () => {
    await add([{ step: "drain", devices: devices.map(idOf), steps: parseCount(steps) }]);
    done();
  };
  return (
    <Ask title="Drain devices" verb="Drain" run={run} close={close}>
      <p>{names(devices)}</p>
      <p>Each rebalance takes a part of what they hold. Remove them when they are empty.</p>
      <Field label="Rebalances until they are empty" value={steps} on={setSteps} required focus />
    </Ask>
  );
}

function Remove({ devices, close, done }: Chosen) {
  const [force, setForce] = useState(false);
  const run = async () => {
    await add([{ step: "remove", devices: devices.map(idOf), force }]);
    done();
  };
  return (
    <Ask title="Remove devices" verb="Remove" danger run={run} close={close}>
      <p>{names(devices)}</p>
      <p>Remove dead devices, and drained ones that are empty. The next rebalance moves all their replicas at once. Until these are copied, one replica of each is missing.</p>
      <label><input type="checkbox" checked={force} onChange={(event) => setForce(event.currentTarget.checked)} /> Even the last device of a zone that placement needs</label>
    </Ask>
  );
}
