//! Profiles of a process for operators: its processor time and its heap by functions, and its memory by
//! mappings.
//!
//! ```text
//! POST profile/cpu  ─▶ gate, audit record ─▶ cpu: SIGPROF samples ──────▶ stacks ─┬─ pprof (gzip)
//! POST profile/heap ─▶ gate, audit record ─▶ heap: sampled allocations ─▶ stacks ─┘  or folded text
//! GET profile/memory ─▶ gate ─▶ memory: /proc/self
//! ```
//!
//! * [`cpu`]: one run of the sampling profiler; [`heap`]: one window of the sampling allocator;
//!   [`stack`]: their stacks; [`program`]: places of functions without a name.
//! * [`pprof_file`], [`folded`]: the two formats.
//! * [`memory`]: memory as the kernel counts it.
//!
//! The routes need the role operator. A profile names functions and threads of the program, and
//! nothing of requests. Each run costs processor time: one runs at a time, for a bounded time at a
//! bounded frequency.

mod cpu;
mod folded;
mod heap;
mod memory;
mod pprof_file;
mod program;
mod stack;

use std::io;

use axum::extract::Query;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use martlet_admin_api::profile::{
    CPU_PROFILE, FOLDED, FREQUENCY_DEFAULT, FREQUENCY_MAX, HEAP_INTERVAL_DEFAULT,
    HEAP_INTERVAL_MAX, HEAP_INTERVAL_MIN, HEAP_PROFILE, MEMORY_PROFILE, MemoryProfile, PPROF,
    SAMPLES_HEADER, SECONDS_MAX,
};
use schemars::JsonSchema;
use serde::Deserialize;

use self::cpu::{CpuRun, ProfileError};
use self::heap::HeapRun;
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

/// Query parameters of a profile of the heap.
#[derive(Deserialize, JsonSchema)]
struct HeapQuery {
    /// Duration in seconds, from 1 to 60.
    seconds: u64,
    /// Mean number of allocated bytes between two samples, from 16,384 to 1,073,741,824. Default: 524,288.
    interval: Option<u64>,
    /// `pprof`, compressed by gzip, or `folded`: lines of text with bytes. Default: `pprof`.
    format: Option<String>,
}

/// Maximum of the seconds times the samples for each second. More cores take more samples, and all are
/// in memory at the end.
const SAMPLES_MAX: u64 = 10_000;

/// Returns the routes of profiles, which each open process has.
pub(crate) fn routes() -> ApiRoutes {
    let summary = "Sample the processor time of the process by functions; one profile at a time";
    let cpu = ApiDoc::bytes(RouteAccess::Operate, summary, BINARY).query::<CpuQuery>();
    let summary = "Sample the allocations of the process by functions; one profile at a time";
    let heap = ApiDoc::bytes(RouteAccess::Operate, summary, BINARY).query::<HeapQuery>();
    let summary = "Show the memory of the process by mappings, as the kernel counts it";
    let memory = ApiDoc::reply::<MemoryProfile>(RouteAccess::Operate, summary);
    ApiRoutes::new().post(CPU_PROFILE, cpu, cpu_profile).post(HEAP_PROFILE, heap, heap_profile).get(
        MEMORY_PROFILE,
        memory,
        memory_profile,
    )
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
    let (seconds, frequency) = (run.seconds, run.frequency);
    tracing::info!(who = name_of(&principal), seconds, frequency, "a CPU profile");
    match run.take().await {
        Ok(profile) if format == FOLDED => {
            encoded(profile.samples(), TEXT, move || Ok(folded::encode(&profile.stacks).into()))
                .await
        }
        Ok(profile) => {
            let samples = profile.samples();
            encoded(samples, BINARY, move || pprof_file::encode(&profile.content())).await
        }
        Err(error) => refused(error, "CPU"),
    }
}

async fn heap_profile(
    Extension(principal): Extension<Principal>,
    Query(query): Query<HeapQuery>,
) -> Response {
    let format = query.format.as_deref().unwrap_or(PPROF);
    let interval = query.interval.unwrap_or(HEAP_INTERVAL_DEFAULT);
    let run = HeapRun { seconds: query.seconds, interval };
    if let Err(sentence) = check_heap(run, format) {
        return refuse(StatusCode::BAD_REQUEST, &sentence);
    }
    let seconds = run.seconds;
    tracing::info!(who = name_of(&principal), seconds, interval, "a heap profile");
    match run.take().await {
        Ok(profile) if format == FOLDED => {
            encoded(profile.samples, TEXT, move || Ok(folded::encode(&profile.lines()).into()))
                .await
        }
        Ok(profile) => {
            let samples = profile.samples;
            encoded(samples, BINARY, move || pprof_file::encode(&profile.content())).await
        }
        Err(error) => refused(error, "heap"),
    }
}

/// Returns the name of the principal, for the log.
fn name_of(principal: &Principal) -> String {
    let who = principal.line();
    who.name.unwrap_or(who.kind)
}

/// Encodes a profile on a thread that may block: tens of thousands of stacks are compressed.
async fn encoded(
    samples: u64,
    media: &'static str,
    encode: impl FnOnce() -> io::Result<Vec<u8>> + Send + 'static,
) -> Response {
    match tokio::task::spawn_blocking(encode).await {
        Ok(Ok(bytes)) => {
            let head = [(header::CONTENT_TYPE, media.to_owned()), (SAMPLES, samples.to_string())];
            (head, bytes).into_response()
        }
        Ok(Err(error)) => {
            let sentence = format!("the profile can't be compressed: {error}");
            refuse(StatusCode::INTERNAL_SERVER_ERROR, &sentence)
        }
        Err(_) => refuse(StatusCode::INTERNAL_SERVER_ERROR, "the request failed"),
    }
}

fn refused(error: ProfileError, kind: &str) -> Response {
    match error {
        ProfileError::Busy => refuse(
            StatusCode::CONFLICT,
            &format!(
                "another {kind} profile of this process is under way: try again after its end"
            ),
        ),
        ProfileError::Failed(reason) => refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            &format!("the profiler can't be used: {reason}"),
        ),
    }
}

/// Refuses parameters out of their bounds.
fn check(run: CpuRun, format: &str) -> Result<(), String> {
    check_seconds(run.seconds)?;
    if !(1..=FREQUENCY_MAX).contains(&run.frequency) {
        return Err(format!("frequency must be a number from 1 to {FREQUENCY_MAX}"));
    }
    if run.seconds * u64::from(run.frequency) > SAMPLES_MAX {
        return Err(format!("seconds times frequency must be at most {SAMPLES_MAX}"));
    }
    check_format(format)
}

/// Refuses parameters of a heap profile that are out of their bounds.
fn check_heap(run: HeapRun, format: &str) -> Result<(), String> {
    check_seconds(run.seconds)?;
    if !(HEAP_INTERVAL_MIN..=HEAP_INTERVAL_MAX).contains(&run.interval) {
        let (min, max) = (HEAP_INTERVAL_MIN, HEAP_INTERVAL_MAX);
        return Err(format!("interval must be a number of bytes from {min} to {max}"));
    }
    check_format(format)
}

fn check_seconds(seconds: u64) -> Result<(), String> {
    let is_bounded = (1..=SECONDS_MAX).contains(&seconds);
    is_bounded
        .then_some(())
        .ok_or_else(|| format!("seconds must be a number from 1 to {SECONDS_MAX}"))
}

fn check_format(format: &str) -> Result<(), String> {
    let is_known = [PPROF, FOLDED].contains(&format);
    is_known.then_some(()).ok_or_else(|| format!("format must be {PPROF} or {FOLDED}"))
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

    #[test]
    fn parameters_of_the_heap_have_bounds() {
        let run = |seconds, interval| HeapRun { seconds, interval };
        for (seconds, interval) in [(1, HEAP_INTERVAL_MIN), (SECONDS_MAX, HEAP_INTERVAL_MAX)] {
            assert_eq!(check_heap(run(seconds, interval), FOLDED), Ok(()));
        }
        for (wrong, format, named) in [
            (run(0, HEAP_INTERVAL_DEFAULT), PPROF, "seconds"),
            (run(1, HEAP_INTERVAL_MIN - 1), PPROF, "interval"),
            (run(1, HEAP_INTERVAL_MAX + 1), PPROF, "interval"),
            (run(1, HEAP_INTERVAL_DEFAULT), "svg", "format"),
        ] {
            assert!(check_heap(wrong, format).unwrap_err().starts_with(named));
        }
    }
}
