//! `martlet cluster plan` and `apply`: a cluster of several machines from one file.

use martlet_deploy::{
    ClusterPlan, ClusterSpec, Credentials, NodeSurvey, PlanOptions, push, survey,
};
use martlet_serving::Failure;
use tokio::runtime::Runtime;

use super::args::DeployArgs;
use crate::node;

/// Prints the plan of a file.
pub(super) fn plan(args: &DeployArgs) -> Result<(), Failure> {
    let spec = ClusterSpec::load(&args.file)?;
    let (plan, _) = make(args, &spec, &runtime()?)?;
    show(&plan, args.json);
    Ok(())
}

/// Prints the plan of a file, writes its files and pushes its rings.
pub(super) fn apply(args: &DeployArgs) -> Result<(), Failure> {
    let spec = ClusterSpec::load(&args.file)?;
    let runtime = runtime()?;
    let (plan, credentials) = make(args, &spec, &runtime)?;
    show(&plan, args.json);
    if plan.is_empty() {
        return refuse_if_waiting(&plan);
    }
    plan.write(&args.out)?;
    let mut pushed = Vec::new();
    if let Some(credentials) = &credentials {
        for (name, ring) in plan.stale_rings() {
            let node = runtime.block_on(push(credentials, plan.survey(), name, ring))?;
            pushed.push(format!("{node} has the {name} ring of epoch {}", ring.epoch()));
        }
    }
    if !args.json {
        for line in pushed {
            println!("{line}, and passes it on");
        }
        let machines = plan.machines_to_copy();
        if !machines.is_empty() {
            let (out, names) = (args.out.display(), machines.join(", "));
            println!(
                "copy the folders of {names} in {out} to /etc/martlet of these machines, and run \
                 install.sh there"
            );
        }
    }
    refuse_if_waiting(&plan)
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
        Some(credentials) => runtime.block_on(survey(spec, credentials)),
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
