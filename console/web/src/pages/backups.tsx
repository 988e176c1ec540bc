// Backups: made, checked, compared with the cluster and restored. Files are sealed and opened in the page, so that no
// passphrase and no key of a backup is sent to the server.
import { MakeBackup } from "../backup/make-card";
import { OpenCard } from "../backup/open-card";
import { Card, Head } from "../ui/parts";

export function Backups() {
  return (
    <>
      <Head title="Backups" lead="What a cluster can't rebuild, in one encrypted file. This page and martlet admin backup read each other's files." />
      {window.isSecureContext && typeof CompressionStream === "function" ? (
        <>
          <MakeBackup />
          <OpenCard />
        </>
      ) : (
        <Card title="Not in this browser" wide>
          <p>Browsers encrypt in pages over HTTPS and at addresses of their own machine alone, and need to be from 2023 or later. Open the console over TLS, or use <code>martlet admin backup</code>.</p>
        </Card>
      )}
    </>
  );
}
