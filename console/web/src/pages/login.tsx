// Login by a key of the admin API, by an access key of S3, by the root key, or by an identity provider.
import { useEffect, useState } from "preact/hooks";
import { beginLogin, farewell, login, provider } from "../session";
import { Failure, Field } from "../ui/parts";

export function Login() {
  const [key, setKey] = useState("");
  const [secret, setSecret] = useState("");
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const [oidc, setOidc] = useState<string | null>(null);
  useEffect(() => void provider().then(setOidc), []);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (busy) return;
    setBusy(true);
    const refusal = await login(key, secret);
    setSecret("");
    setError(refusal);
    setBusy(false);
  };
  return (
    <main class="login">
      <form class="card" onSubmit={(event) => void submit(event)}>
        <img src="/icon.svg" alt="" width="44" height="44" />
        <h1>Martlet</h1>
        <p>Sign in with an access key, with an admin key, or with the root key of the store.</p>
        {farewell.value && !error && <p class="farewell" role="status">{farewell.value}</p>}
        <Field label="Key" value={key} on={setKey} required auto="username" focus />
        <Field label="Secret" type="password" value={secret} on={setSecret} required auto="current-password" />
        {error && <Failure text={error} />}
        <button class="primary" aria-disabled={busy}>{busy ? "Signing in…" : "Sign in"}</button>
        {oidc !== null && <a class="button" href="/login/oidc" onClick={beginLogin}>Sign in with {oidc}</a>}
        <small>The secret is sent once, and not kept in this browser.</small>
      </form>
    </main>
  );
}
