//! Arguments of `martlet bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use martlet_serving::{Size, parse_span};

use super::cpu::MeasuredProcess;
use super::error::{BenchError, BenchResult};

/// Arguments of `martlet bench`.
#[derive(Args, Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent command-line flag")]
pub(crate) struct BenchArgs {
    /// URL of the S3 endpoint: http:// or https://. `SSL_CERT_FILE` names the certificates of a
    /// private authority
    #[arg(long, default_value = "http://127.0.0.1:9000")]
    pub(crate) endpoint: String,
    /// Use HTTP/2; needs an https:// endpoint
    #[arg(long)]
    pub(crate) http2: bool,
    /// Operation to repeat
    #[arg(long, value_enum)]
    pub(crate) op: BenchOperation,
    /// Bytes per object, or per range
    #[arg(long, default_value = "4KiB")]
    pub(crate) size: Size,
    /// Bytes of the objects for range reads
    #[arg(long, default_value = "64MiB")]
    pub(crate) object_size: Size,
    /// Concurrent requests, each on its own connection
    #[arg(long, default_value_t = 16)]
    pub(crate) concurrency: usize,
    /// Duration of the run, such as `10s`, `500ms` or `2m`
    #[arg(long, default_value = "10s", value_parser = parse_span)]
    pub(crate) duration: Duration,
    /// Threads that send the requests
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,
    /// Objects to prepare; for PUT, overwrite this many keys instead of creating new ones
    #[arg(long)]
    pub(crate) objects: Option<u64>,
    /// Bucket; created before the run and removed afterwards if missing
    #[arg(long, default_value = "martlet-bench")]
    pub(crate) bucket: String,
    /// Prefix of all keys
    #[arg(long, default_value = "bench")]
    pub(crate) prefix: String,
    /// Use existing objects: neither create nor remove them
    #[arg(long)]
    pub(crate) prepared: bool,
    /// Keep the prepared objects for a later run with --prepared
    #[arg(long, conflicts_with = "prepared")]
    pub(crate) keep: bool,
    /// Presign URLs before the run instead of signing each request
    #[arg(long, group = "signing")]
    pub(crate) presigned: bool,
    /// Sign the SHA-256 of the payload too
    #[arg(long, group = "signing")]
    pub(crate) signed_payload: bool,
    /// Send objects as SDKs do: aws-chunked, with a CRC-64/NVME in the trailer
    #[arg(long, group = "signing")]
    pub(crate) chunked: bool,
    /// Send unsigned requests, for plain web servers
    #[arg(long, group = "signing", requires = "prepared")]
    pub(crate) unsigned: bool,
    /// Access key
    #[arg(long, env = "MARTLET_ROOT_ACCESS_KEY", default_value = "", hide_env_values = true)]
    pub(crate) access_key: String,
    /// Secret key
    #[arg(long, env = "MARTLET_ROOT_SECRET_KEY", default_value = "", hide_env_values = true)]
    pub(crate) secret_key: String,
    /// Region in signatures
    #[arg(long, default_value = "us-east-1")]
    pub(crate) region: String,
    /// Server process ids to report CPU seconds of; `ROLE=PID` groups by role
    #[arg(long, value_delimiter = ',', value_name = "[ROLE=]PID")]
    pub(crate) pid: Vec<MeasuredProcess>,
    /// Also report each interval of the run, such as 1s
    #[arg(long, value_parser = parse_span, value_name = "SPAN")]
    pub(crate) every: Option<Duration>,
    /// Print one JSON object and no progress
    #[arg(long)]
    pub(crate) json: bool,
    /// Folder for `--op files`, `--op receive` and `--op commit`
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Compute the MD5 of written data in `--op files` and `--op receive`
    #[arg(long)]
    pub(crate) md5: bool,
    /// Overwrite one file per thread in `--op files` instead of creating new ones
    #[arg(long)]
    pub(crate) in_place: bool,
}

/// Operation that the benchmark repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchOperation {
    /// Write objects
    Put,
    /// Read whole objects
    Get,
    /// Read ranges at random offsets of larger objects
    Range,
    /// Overwrite random objects with random sizes from 8 KiB to --size
    Overwrite,
    /// List up to 1,000 keys; of more objects, from a random one on
    List,
    /// Delete objects; stops early when none is left
    Delete,
    /// Mix of 65 % reads, 25 % writes, 5 % deletes and 5 % listings
    Mixed,
    /// Without a server: create, write, fsync and rename files, and sync their folder
    Files,
    /// Without a server: receive bodies from sockets, hash them and write durable files
    Receive,
    /// Without a server: write objects to RocksDB, all that wait in one synced batch
    Commit,
    /// Without a server: seal bytes in memory by AES-256-GCM, as TLS does
    Seal,
    /// Without a store: answer GETs from memory by the HTTP library alone
    Answer,
    /// Without a store: answer GETs by the HTTP library and two nodes that answer frames
    Relay,
}

impl BenchOperation {
    /// Returns true for operations without a server.
    pub(crate) fn is_baseline(self) -> bool {
        matches!(
            self,
            Self::Files | Self::Receive | Self::Commit | Self::Seal | Self::Answer | Self::Relay
        )
    }
}

/// Method of signing requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SigningMethod {
    /// Signed headers, with `UNSIGNED-PAYLOAD`.
    Headers,
    /// Signed headers, with the payload's SHA-256.
    Payload,
    /// Signed headers; objects are aws-chunked, with their checksum in the trailer.
    Chunked,
    /// Presigned URLs, made once for each path.
    Presigned,
    /// Unsigned requests.
    None,
}

impl BenchArgs {
    /// Checks that the arguments fit together.
    pub(crate) fn check(&self) -> BenchResult<()> {
        let complaint = if self.concurrency == 0 || self.threads == 0 {
            "--concurrency and --threads must be at least 1"
        } else if self.op == BenchOperation::Files && self.dir.is_none() {
            "--op files needs --dir"
        } else if matches!(self.op, BenchOperation::Receive | BenchOperation::Commit)
            && self.dir.is_none()
        {
            "--op receive and --op commit need --dir"
        } else if self.chunked && self.op == BenchOperation::Overwrite {
            "--chunked needs objects of one size: use --op put"
        } else if self.op == BenchOperation::Range && self.size.0 > self.object_size.0 {
            "--size of a range must be at most --object-size"
        } else if self.every == Some(Duration::ZERO) {
            "--every must be at least 1ms"
        } else if self.size.0 == 0
            && (self.op.is_baseline()
                || matches!(self.op, BenchOperation::Range | BenchOperation::Overwrite))
        {
            "--size must be at least 1 for this operation"
        } else if self.signing() != SigningMethod::None
            && !self.op.is_baseline()
            && (self.access_key.is_empty() || self.secret_key.is_empty())
        {
            "no credentials: set --access-key and --secret-key (or MARTLET_ROOT_ACCESS_KEY and \
             MARTLET_ROOT_SECRET_KEY), or use --unsigned"
        } else {
            return Ok(());
        };
        Err(BenchError::new(complaint))
    }

    /// Returns the method of signing requests.
    pub(crate) fn signing(&self) -> SigningMethod {
        match (self.unsigned, self.presigned, self.signed_payload, self.chunked) {
            (true, _, _, _) => SigningMethod::None,
            (_, true, _, _) => SigningMethod::Presigned,
            (_, _, true, _) => SigningMethod::Payload,
            (_, _, _, true) => SigningMethod::Chunked,
            _ => SigningMethod::Headers,
        }
    }

    /// Returns the size in bytes of the objects that are prepared or written.
    pub(crate) fn object_bytes(&self) -> u64 {
        if self.op == BenchOperation::Range { self.object_size.0 } else { self.size.0 }
    }

    /// Returns the number of objects that are made before the run.
    pub(crate) fn objects_prepared(&self) -> u64 {
        let few_large = if self.object_bytes() > 1 << 20 { 8 } else { 256 };
        let given = |usual| self.objects.unwrap_or(usual);
        match self.op {
            BenchOperation::Get
            | BenchOperation::Range
            | BenchOperation::Overwrite
            | BenchOperation::Mixed => given(few_large).max(1),
            BenchOperation::List => given(1000),
            BenchOperation::Delete => given(10_000),
            BenchOperation::Put
            | BenchOperation::Files
            | BenchOperation::Receive
            | BenchOperation::Commit
            | BenchOperation::Seal
            | BenchOperation::Answer
            | BenchOperation::Relay => 0,
        }
    }
}

/// Command line of tests: `martlet bench` alone.
#[cfg(test)]
#[derive(clap::Parser)]
pub(super) struct BenchCli {
    #[command(flatten)]
    pub(super) bench: BenchArgs,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn parse(line: &str) -> Result<BenchArgs, clap::Error> {
        BenchCli::try_parse_from(line.split(' ')).map(|cli| cli.bench)
    }

    #[test]
    fn ways_of_signing_exclude_each_other() {
        let keys = "--access-key a --secret-key b";
        let signing =
            |flags: &str| parse(&format!("bench --op get {keys}{flags}")).unwrap().signing();
        assert_eq!(signing(""), SigningMethod::Headers);
        assert_eq!(signing(" --presigned"), SigningMethod::Presigned);
        assert_eq!(signing(" --signed-payload"), SigningMethod::Payload);
        assert_eq!(signing(" --chunked"), SigningMethod::Chunked);
        assert_eq!(signing(" --unsigned --prepared"), SigningMethod::None);
        assert!(parse("bench --op get --presigned --signed-payload").is_err());
        assert!(parse("bench --op get --unsigned").is_err());
    }

    #[test]
    fn arguments_that_do_not_fit_together_are_refused() {
        let check = |line: &str| {
            parse(&format!("bench --access-key a --secret-key b {line}")).unwrap().check()
        };
        assert!(check("--op get").is_ok());
        assert!(check("--op get --concurrency 0").is_err());
        assert!(check("--op files").is_err());
        assert!(check("--op receive").is_err());
        assert!(check("--op commit").is_err());
        assert!(check("--op overwrite --chunked").is_err());
        assert!(check("--op range --size 2MiB --object-size 1MiB").is_err());
        assert!(check("--op range --size 0").is_err());
        assert!(check("--op get --every 0s").is_err());
        assert!(check("--op get --every 1s --pid 12,proxy=13").is_ok());
    }

    #[test]
    fn a_read_always_has_something_to_read() {
        let args = parse("bench --op get --objects 0").unwrap();
        assert_eq!(args.objects_prepared(), 1);
        assert_eq!(parse("bench --op put").unwrap().objects_prepared(), 0);
        assert_eq!(parse("bench --op range").unwrap().object_bytes(), 64 << 20);
    }
}
