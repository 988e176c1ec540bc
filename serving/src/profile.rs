//! Profiles of a process for operators: its processor time by functions, and its memory by mappings.
//!
//! ```text
//! POST profile/cpu ─▶ gate, audit record ─▶ cpu: SIGPROF samples ─▶ stacks ─┬─ pprof (gzip)
//! GET profile/memory ─▶ gate ─▶ memory: /proc/self                           └─ folded text
//! ```
//!
//! * [`cpu`]: one run of the sampling profiler; [`stack`]: its stacks.
//! * [`pprof_file`], [`folded`]: the two formats.
//! * [`memory`]: memory as the kernel counts it.
//!
//! The routes need the role operator. A profile names functions and threads of the program, and
//! nothing of requests. Each run costs processor time: one runs at a time, for a bounded time at a
//! bounded frequency.

mod cpu;
mod folded;
mod memory;
mod pprof_file;
mod stack;

use axum::extract::Query;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use martlet_admin_api::profile::{
    CPU_PROFILE, FOLDED, FREQUENCY_DEFAULT, FREQUENCY_MAX, MEMORY_PROFILE, MemoryProfile, PPROF,
    SAMPLES_HEADER, SECONDS_MAX,
};
use schemars::JsonSchema;
use serde::Deserialize;

use self::cpu::{CpuProfile, CpuRun, ProfileError};
use crate::access::{Principal, RouteAccess};
use crate::api::{ApiDoc, ApiRoutes};
use crate::refusal::refuse;

const SAMPLES: HeaderName = HeaderName::from_static(SAMPLES_HEADER);
/// Media types of the two formats.
const BINARY: &str = "application/octet-stream";
const TEXT: &str = "text/plain; charset=utf-8";

/// Query parameters of a profile of processor time.
#[derive(Deserialize, JsonSchema)]
struct CpuQuery {
    /// Duration in seconds, from 1 to 60.
    seconds: u64,
    /// Samples for each second of processor time, from 1 to 999. Default: 99.
    frequency: Option<u32>,
    /// `pprof`, compressed by gzip, or `folded`: a line of text for each stack. Default: `pprof`.
    format: Option<String>,
}

/// Maximum of the seconds times the samples for each second. More cores take more samples, and all are
/// in memory at the end.
const SAMPLES_MAX: u64 = 10_000;

/// Returns the routes of profiles, which each open process has.
pub(crate) fn routes() -> ApiRoutes {
    let summary = "Sample the processor time of the process by functions; one profile at a time";
    let cpu = ApiDoc::bytes(RouteAccess::Operate, summary, BINARY).query::<CpuQuery>();
    let summary = "Show the memory of the process by mappings, as the kernel counts it";
    let memory = ApiDoc::reply::<MemoryProfile>(RouteAccess::Operate, summary);
    ApiRoutes::new().post(CPU_PROFILE, cpu, cpu_profile).get(MEMORY_PROFILE, memory, memory_profile)
}

async fn cpu_profile(
    Extension(principal): Extension<Principal>,
    Query(query): Query<CpuQuery>,
) -> Response {
    let format = query.format.as_deref().unwrap_or(PPROF);
    let run =
        CpuRun { seconds: query.seconds, frequency: query.frequency.unwrap_or(FREQUENCY_DEFAULT) };
    if let Err(sentence) = check(run, format) {
        return refuse(StatusCode::BAD_REQUEST, &sentence);
    }
    let who = principal.line();
    let name = who.name.as_deref().unwrap_or(&who.kind);
    tracing::info!(who = name, seconds = run.seconds, frequency = run.frequency, "a CPU profile");
    match run.take().await {
        Ok(profile) => {
            let is_folded = format == FOLDED;
            // Tens of thousands of stacks are compressed.
            tokio::task::spawn_blocking(move || reply(&profile, is_folded))
                .await
                .unwrap_or_else(|_| refuse(StatusCode::INTERNAL_SERVER_ERROR, "the request failed"))
        }
        Err(ProfileError::Busy) => refuse(
            StatusCode::CONFLICT,
            "another CPU profile of this process is under way: try again after its end",
        ),
        Err(ProfileError::Failed(reason)) => refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            &format!("the profiler can't be used: {reason}"),
        ),
    }
}

/// Refuses parameters out of their bounds.
fn check(run: CpuRun, format: &str) -> Result<(), String> {
    if !(1..=SECONDS_MAX).contains(&run.seconds) {
        return Err(format!("seconds must be a number from 1 to {SECONDS_MAX}"));
    }
    if !(1..=FREQUENCY_MAX).contains(&run.frequency) {
        return Err(format!("frequency must be a number from 1 to {FREQUENCY_MAX}"));
    }
    if run.seconds * u64::from(run.frequency) > SAMPLES_MAX {
        return Err(format!("seconds times frequency must be at most {SAMPLES_MAX}"));
    }
    if ![PPROF, FOLDED].contains(&format) {
        return Err(format!("format must be {PPROF} or {FOLDED}"));
    }
    Ok(())
}

fn reply(profile: &CpuProfile, is_folded: bool) -> Response {
    let samples = profile.samples().to_string();
    let (media, bytes) = if is_folded {
        (TEXT, folded::encode(&profile.stacks).into_bytes())
    } else {
        match pprof_file::encode(profile) {
            Ok(bytes) => (BINARY, bytes),
            Err(error) => {
                let sentence = format!("the profile can't be compressed: {error}");
                return refuse(StatusCode::INTERNAL_SERVER_ERROR, &sentence);
            }
        }
    };
    ([(header::CONTENT_TYPE, media.to_owned()), (SAMPLES, samples)], bytes).into_response()
}

async fn memory_profile() -> Response {
    // The kernel walks all pages for it.
    match tokio::task::spawn_blocking(memory::read).await {
        Ok(Ok(profile)) => Json(profile).into_response(),
        Ok(Err(error)) => refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            &format!("the memory of the process can't be read: {error}"),
        ),
        Err(_) => refuse(StatusCode::INTERNAL_SERVER_ERROR, "the request failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_bounds() {
        let run = |seconds, frequency| CpuRun { seconds, frequency };
        for (seconds, frequency) in [(1, 1), (10, FREQUENCY_MAX), (SECONDS_MAX, 99)] {
            assert_eq!(check(run(seconds, frequency), PPROF), Ok(()));
        }
        for (wrong, format, named) in [
            (run(0, 99), PPROF, "seconds"),
            (run(SECONDS_MAX + 1, 99), PPROF, "seconds"),
            (run(1, 0), PPROF, "frequency"),
            (run(1, FREQUENCY_MAX + 1), FOLDED, "frequency"),
            (run(SECONDS_MAX, FREQUENCY_MAX), FOLDED, "seconds times frequency"),
            (run(1, 99), "svg", "format"),
        ] {
            assert!(check(wrong, format).unwrap_err().starts_with(named));
        }
    }
}
