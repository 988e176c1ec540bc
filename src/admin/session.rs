//! `martlet admin session`: bearer tokens of limited time, for programs that can't sign requests.

use std::time::Duration;

use clap::Subcommand;
use martlet_admin_api::accounts::DeletedLine;
use martlet_admin_api::principals::{PrincipalLine, SESSION, SessionReply, SessionRequest};
use martlet_serving::{Failure, parse_span};

use super::client::AdminEndpoint;
use super::print::{show, time};

/// Subcommands of `martlet admin session`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
A session has role and tenant of the admin key that begins it. It ends by itself, or with its key.

Examples:
  export MARTLET_ADMIN_SESSION=$(martlet admin --admin-key-file ops.key session begin --for 8h)
  martlet admin session show
  martlet admin session end")]
pub(super) enum SessionCommand {
    /// Begin a session of the key of --admin-key-file, and print its token
    Begin {
        /// Length of the session, at most 12h
        #[arg(long = "for", value_name = "SPAN", default_value = "1h", value_parser = parse_span)]
        length: Duration,
    },
    /// Show role, tenant and end of the session or key of this command
    Show,
    /// End a session
    End {
        /// Id of the session [default: the session of this command]
        id: Option<String>,
    },
}

impl SessionCommand {
    /// Sends the command's request and prints the answer.
    pub(super) fn run(&self, server: &AdminEndpoint, json: bool) -> Result<(), Failure> {
        match self {
            Self::Begin { length } => {
                let request = SessionRequest { seconds: Some(length.as_secs()) };
                let begun: SessionReply = server.post(SESSION, &request)?;
                show(&begun, json, |begun| format!("{}\n", begun.token));
            }
            Self::Show => {
                let line: PrincipalLine = server.request_json(SESSION, &[])?;
                show(&line, json, requester);
            }
            Self::End { id } => {
                let query: Vec<_> = id.iter().map(|id| ("id", id.as_str())).collect();
                let ended: DeletedLine = server.delete(SESSION, &query)?;
                show(&ended, json, |it| format!("ended session {}\n", it.deleted));
            }
        }
        Ok(())
    }
}

fn requester(line: &PrincipalLine) -> String {
    let of = |what: &str, value: &Option<String>| {
        value.as_ref().map(|value| format!(", {what} {value}")).unwrap_or_default()
    };
    let until = line.expires_ms.map(|end| format!(", until {}", time(end))).unwrap_or_default();
    format!(
        "{} by {}{}{}{}{until}\n",
        line.role,
        line.kind,
        of("tenant", &line.tenant),
        of("key", &line.key),
        of("session", &line.session)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requester_is_one_line() {
        let line = PrincipalLine {
            kind: "session".into(),
            role: "tenant-admin".into(),
            tenant: Some("research".into()),
            key: Some("MADM1".into()),
            expires_ms: Some(1_795_833_000_000),
            ..PrincipalLine::default()
        };
        let text = requester(&line);
        let expected = "tenant-admin by session, tenant research, key MADM1, until 2026-11-28 \
                        02:30:00Z\n";
        assert_eq!(text, expected);
    }
}
