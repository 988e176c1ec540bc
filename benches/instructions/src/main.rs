//! S3 requests against a backend in memory, for callgrind to count their instructions.
//!
//! Each case prepares a bucket of its own, makes its requests, and executes them in [`measured`]:
//! HTTP pipeline, authentication, dispatch, object layer and reply, without sockets and disks.
//! `run.py` has callgrind collect within [`measured`] alone, and compares the counts with
//! `counts.json`. One thread executes everything, time stands still, and caches outlast the run, so
//! that two runs of one binary count equal requests. Work that the object layer gives to other
//! threads is not counted.
//!
//! Without arguments the binary prints the names of the cases. With the name of a case it executes
//! the case, and prints the number of its requests.

mod cases;
mod world;

use bytes::Bytes;
use http_body_util::BodyExt;
use martlet_s3compat::S3Service;
use tokio::runtime::Runtime;

use cases::Case;
use world::SignedRequest;

/// Requests before the measured ones, which fill caches.
const WARM_UP: usize = 4;

fn main() {
    let Some(name) = std::env::args().nth(1) else {
        for (name, _) in cases::all() {
            println!("{name}");
        }
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime needs an epoll descriptor only");
    let case = cases::all().into_iter().find(|(known, _)| *known == name);
    let (_, prepare) = case.expect("run.py passes names that the binary printed");
    let Case { world, mut requests, status } = runtime.block_on(prepare());
    let rest = requests.split_off(WARM_UP);
    execute(&runtime, &world.service, requests, status);
    println!("{}", rest.len());
    measured(&runtime, &world.service, rest, status);
}

/// Executes requests while callgrind collects. The name is the one that `run.py` passes to
/// callgrind.
#[inline(never)]
fn measured(runtime: &Runtime, service: &S3Service, requests: Vec<SignedRequest>, status: u16) {
    execute(runtime, service, requests, status);
}

fn execute(runtime: &Runtime, service: &S3Service, requests: Vec<SignedRequest>, status: u16) {
    runtime.block_on(async {
        for request in requests {
            let reply = service.call(request).await;
            assert_eq!(reply.status().as_u16(), status);
            let mut body = reply.into_body();
            while let Some(frame) = body.frame().await {
                let frame = frame.expect("the reply is whole");
                std::hint::black_box(frame.data_ref().map(Bytes::len));
            }
        }
    });
}
