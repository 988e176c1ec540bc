//! `martlet cluster plan` and `apply`: a cluster of several machines from one file.

use std::path::Path;

use martlet_deploy::{
    ClusterPlan, ClusterSpec, Credentials, LockedOutput, NodeSurvey, PlanOptions, push, survey,
};
use martlet_serving::Failure;
use tokio::runtime::Runtime;

use super::args::DeployArgs;
use crate::node;
use crate::progress::CountedWork;

/// Prints the plan of a file.
pub(super) fn plan(args: &DeployArgs) -> Result<(), Failure> {
    let spec = ClusterSpec::load(&args.file)?;
    let (plan, _) = make(args, &spec, &runtime()?)?;
    show(&plan, args.json);
    Ok(())
}

/// Prints the plan of a file, writes its files and pushes its rings. Holds the output folder from
/// before the plan until the end. While rings wait, nothing is written.
pub(super) fn apply(args: &DeployArgs) -> Result<(), Failure> {
    let spec = ClusterSpec::load(&args.file)?;
    let runtime = runtime()?;
    let locked = LockedOutput::lock(&args.out)?;
    let (plan, credentials) = make(args, &spec, &runtime)?;
    show(&plan, args.json);
    let mut to_copy = None;
    if plan.waits().is_none() && !plan.is_empty() {
        plan.write(&locked)?;
        to_copy = copy_sentence(&args.out, &plan.machines_to_copy());
        if let (Some(sentence), false) = (&to_copy, args.json) {
            println!("{sentence}");
        }
    }
    if let Some(credentials) = &credentials {
        runtime.block_on(push_all(args, &plan, credentials)).map_err(|failure| {
            Failure::refused(match &to_copy {
                Some(sentence) => format!("{failure}; besides, {sentence}"),
                None => failure.to_string(),
            })
        })?;
    }
    refuse_if_waiting(&plan)
}

/// Pushes the rings that nodes lack, and prints each.
async fn push_all(
    args: &DeployArgs,
    plan: &ClusterPlan,
    credentials: &Credentials,
) -> Result<(), Failure> {
    for (name, ring) in plan.stale_rings() {
        let node = push(credentials, plan.survey(), name, ring).await?;
        if !args.json {
            println!("{node} has the {name} ring of epoch {}, and passes it on", ring.epoch());
        }
    }
    Ok(())
}

/// Sentence about the machines that need their folders, if there are any.
fn copy_sentence(out: &Path, machines: &[&str]) -> Option<String> {
    let (out, names) = (out.display(), machines.join(", "));
    (!machines.is_empty()).then(|| {
        format!(
            "copy the folders of {names} in {out} to /etc/martlet of these machines, and run \
             install.sh there"
        )
    })
}

/// Fails if the file asks for a change of rings that has to wait.
fn refuse_if_waiting(plan: &ClusterPlan) -> Result<(), Failure> {
    match plan.waits() {
        None => Ok(()),
        Some(_) => Err(Failure::refused(
            "the rings don't change yet, for the reason above: apply again later",
        )),
    }
}

fn make(
    args: &DeployArgs,
    spec: &ClusterSpec,
    runtime: &Runtime,
) -> Result<(ClusterPlan, Option<Credentials>), Failure> {
    if !(args.high_water > 0.0 && args.high_water <= 1.0) {
        return Err(Failure::usage(format!(
            "--high-water must be above 0 and at most 1, such as 0.9, not {}",
            args.high_water
        )));
    }
    let credentials = if args.offline { None } else { Credentials::of_folder(spec, &args.out)? };
    let nodes: Vec<NodeSurvey> = match &credentials {
        Some(credentials) => {
            let mut work = CountedWork::begin("cluster", args.json);
            let on_reply = |done: usize, all: usize| {
                let text = format!("{done} of {all} nodes asked");
                work.show(&text, "nodes", done as u64, Some(all as u64));
            };
            runtime.block_on(survey(spec, credentials, on_reply))
        }
        None => Vec::new(),
    };
    let options = PlanOptions {
        settle: args.settle,
        force: args.force,
        bandwidth: args.bandwidth,
        high_water: args.high_water,
        settings: node::setting_names(),
    };
    let environment = |name: &str| std::env::var(name).ok();
    let plan = ClusterPlan::make(spec, &args.out, nodes, &options, &environment)?;
    Ok((plan, credentials))
}

fn show(plan: &ClusterPlan, json: bool) {
    if json {
        println!("{:#}", plan.to_json());
    } else {
        print!("{}", plan.to_text());
    }
}

fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        Failure::refused(format!("the async runtime could not be started: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_that_need_their_folders_are_named() {
        assert_eq!(copy_sentence(Path::new("out"), &[]), None);
        let sentence = copy_sentence(Path::new("out"), &["n1", "n4"]).unwrap();
        assert!(sentence.starts_with("copy the folders of n1, n4 in out to /etc/martlet"));
    }
}
