//! Whole policies: documents that are refused, decisions, and public policies.

use martlet_protocol::limits::POLICY_BYTES_MAX;
use proptest::prelude::*;

use super::question::ARN;
use super::*;

/// An object of the bucket `bkt`.
const OBJECT: &str = "arn:aws:s3:::bkt/k";
const ALLOW_GET: &str = r#"{"Version": "2012-10-17", "Statement": [{"Sid": "a", "Effect": "Allow",
    "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::bkt/*"}]}"#;

fn policy(text: &str) -> Policy {
    Policy::parse(text.as_bytes(), "bkt").unwrap()
}

/// A document of these statements, each without its braces.
fn document(statements: &[&str]) -> String {
    let statements: Vec<String> = statements.iter().map(|one| format!("{{{one}}}")).collect();
    format!(r#"{{"Version": "2012-10-17", "Statement": [{}]}}"#, statements.join(","))
}

/// Principal, action and resource for statements that test something else.
const REST: &str =
    r#""Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::bkt/*""#;

fn refusal(text: &str) -> String {
    Policy::parse(text.as_bytes(), "bkt").unwrap_err().to_string()
}

fn judge(policy: &Policy, who: &str, action: Action, resource: &str) -> PolicyDecision {
    let context = Context::default().with("aws:username", who);
    let requester = if who.is_empty() { Requester::Anonymous } else { Requester::named(who) };
    let arn = &[ARN, resource].concat();
    let question =
        Question { requester: &requester, action, arn, is_new: false, context: &context };
    policy.evaluate(&question.of_policy())
}

#[test]
fn a_policy_allows_its_actions_and_resources_alone() {
    let policy = policy(ALLOW_GET);
    assert_eq!(judge(&policy, "", Action::GetObject, "bkt/k"), PolicyDecision::Allow);
    assert_eq!(judge(&policy, "bob", Action::GetObject, "bkt/a/b"), PolicyDecision::Allow);
    assert_eq!(judge(&policy, "bob", Action::GetObjectVersion, "bkt/k"), PolicyDecision::Undecided);
    assert_eq!(judge(&policy, "bob", Action::PutObject, "bkt/k"), PolicyDecision::Undecided);
    assert_eq!(judge(&policy, "bob", Action::GetObject, "bkt2/k"), PolicyDecision::Undecided);
    assert_eq!(judge(&policy, "bob", Action::ListBucket, "bkt"), PolicyDecision::Undecided);
}

#[test]
fn a_deny_wins_wherever_it_stands() {
    let allow = format!(r#""Effect": "Allow", {REST}"#);
    let deny = r#""Effect": "Deny", "Principal": {"AWS": "bob"}, "Action": "s3:*",
                  "Resource": "arn:aws:s3:::bkt/private/*""#;
    for order in [[allow.as_str(), deny], [deny, &allow]] {
        let policy = policy(&document(&order));
        assert_eq!(judge(&policy, "bob", Action::GetObject, "bkt/private/x"), PolicyDecision::Deny);
        assert_eq!(judge(&policy, "bob", Action::GetObject, "bkt/x"), PolicyDecision::Allow);
        assert_eq!(
            judge(&policy, "eve", Action::GetObject, "bkt/private/x"),
            PolicyDecision::Allow
        );
    }
}

#[test]
fn all_but_what_is_named() {
    let not_principal = document(&[r#""Effect": "Deny", "NotPrincipal": {"AWS": "alice"},
        "Action": "s3:*", "Resource": ["arn:aws:s3:::bkt", "arn:aws:s3:::bkt/*"]"#]);
    let not_principal = policy(&not_principal);
    assert_eq!(
        judge(&not_principal, "alice", Action::GetObject, "bkt/x"),
        PolicyDecision::Undecided
    );
    assert_eq!(judge(&not_principal, "bob", Action::GetObject, "bkt/x"), PolicyDecision::Deny);
    assert_eq!(judge(&not_principal, "", Action::ListBucket, "bkt"), PolicyDecision::Deny);
    let not_action = document(&[r#""Effect": "Allow", "Principal": "*",
        "NotAction": ["s3:Put*", "s3:Delete*"], "NotResource": "arn:aws:s3:::bkt/private/*""#]);
    let not_action = policy(&not_action);
    assert_eq!(judge(&not_action, "bob", Action::GetObject, "bkt/x"), PolicyDecision::Allow);
    assert_eq!(judge(&not_action, "bob", Action::PutObject, "bkt/x"), PolicyDecision::Undecided);
    assert_eq!(
        judge(&not_action, "bob", Action::GetObject, "bkt/private/x"),
        PolicyDecision::Undecided
    );
    let grants_to_others = document(&[r#""Effect": "Allow", "NotPrincipal": {"AWS": "alice"},
        "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::bkt""#]);
    assert_eq!(refusal(&grants_to_others), "Allow with NotPrincipal is not allowed");
}

#[test]
fn variables_give_everyone_a_folder() {
    let text = document(&[r#""Effect": "Allow", "Principal": "*", "Action": "s3:*Object",
        "Resource": "arn:aws:s3:::bkt/own/${aws:username}/*""#]);
    let home = policy(&text);
    assert_eq!(judge(&home, "bob", Action::PutObject, "bkt/own/bob/x"), PolicyDecision::Allow);
    assert_eq!(judge(&home, "bob", Action::PutObject, "bkt/own/eve/x"), PolicyDecision::Undecided);
    let old = policy(&text.replace("2012-10-17", "2008-10-17"));
    assert_eq!(judge(&old, "bob", Action::PutObject, "bkt/own/bob/x"), PolicyDecision::Undecided);
}

#[test]
fn tags_are_set_by_the_statements_principals() {
    let tagged = |condition: &str| {
        policy(&document(&[&format!(
            r#""Effect": "Allow", "Principal": "*",
            "Action": "s3:PutObject", "Resource": "arn:aws:s3:::bkt/*" {condition}"#
        )]))
    };
    let asks_of = |policy: &Policy, tag: &str, is_new: bool| {
        let mut context = Context::default();
        context.set_tags([("security", tag)]);
        let requester = Requester::named("bob");
        let judge = |action| {
            let question =
                Question { requester: &requester, action, arn: OBJECT, is_new, context: &context };
            policy.evaluate(&question.of_policy())
        };
        [Action::PutObject, Action::PutObjectTagging].map(judge)
    };
    let asks = |policy: &Policy, tag: &str| asks_of(policy, tag, true);
    let limited =
        tagged(r#", "Condition": {"StringEquals": {"s3:RequestObjectTag/security": "public"}}"#);
    assert_eq!(asks(&limited, "public"), [PolicyDecision::Allow; 2]);
    assert_eq!(asks(&limited, "secret"), [PolicyDecision::Undecided; 2]);
    // The tags of an object that is there are not the writer's of another.
    let of_existing = asks_of(&limited, "public", false);
    assert_eq!(of_existing, [PolicyDecision::Allow, PolicyDecision::Undecided]);
    assert_eq!(asks(&tagged(""), "public"), [PolicyDecision::Allow, PolicyDecision::Undecided]);
}

/// Judges a GET by a client that names itself `agent`; returns the steps of the evaluation, too.
fn costs(policy: &Policy, agent: &str) -> (PolicyDecision, usize) {
    let context = Context::default().with("aws:UserAgent", agent);
    let before = context.steps_left();
    let (requester, action) = (&Requester::Anonymous, Action::GetObject);
    let question = Question { requester, action, arn: OBJECT, is_new: false, context: &context };
    (policy.evaluate(&question.of_policy()), before - context.steps_left())
}

/// A policy with a condition on the client's name, by these values.
fn about_agents(effect: &str, operator: &str, values: &[String]) -> Policy {
    let values = values.iter().map(|value| format!(r#""{value}""#)).collect::<Vec<_>>().join(",");
    let condition = format!(r#""Condition": {{"{operator}": {{"aws:UserAgent": [{values}]}}}}"#);
    let allow = format!(r#""Effect": "Allow", {REST}"#);
    let limited = format!(r#""Effect": "{effect}", {REST}, {condition}"#);
    let both = [allow.as_str(), limited.as_str()];
    policy(&document(if effect == "Deny" { &both } else { &both[1..] }))
}

#[test]
fn hostile_patterns_cost_a_bounded_number_of_steps() {
    const STEPS_MAX: usize = step_budget::STEPS_MAX;
    let agent = "a".repeat(16 << 10);
    // Before, each value of this policy put 16 KiB of the header into a pattern.
    let variables = vec!["${aws:UserAgent}*?b".to_owned(); 600];
    // And each of these searched a text of 16 KiB for a long section.
    let searched = vec![format!("*{}?b*", "a".repeat(8000)); 2];
    for values in [&variables, &searched] {
        for operator in ["StringLike", "StringEquals", "StringEqualsIgnoreCase"] {
            for effect in ["Allow", "Deny"] {
                let (decision, steps) = costs(&about_agents(effect, operator, values), &agent);
                assert!(steps <= STEPS_MAX, "{operator}: {steps} steps");
                let what = format!("{effect} {operator} {}", &values[0][..10]);
                let is_spent = steps == STEPS_MAX;
                match (effect, is_spent) {
                    (_, true) => assert_eq!(decision, PolicyDecision::Deny, "{what}"),
                    ("Deny", false) => assert_eq!(decision, PolicyDecision::Allow, "{what}"),
                    _ => assert_eq!(decision, PolicyDecision::Undecided, "{what}"),
                }
            }
        }
    }
}

#[test]
fn unevaluated_statements_deny_and_are_never_skipped() {
    let agent = format!("{}b", "a".repeat(30_000));
    // The last value holds, and its evaluation would come after too many steps.
    let section = format!("*{}?c*", "a".repeat(4_000));
    let mut values = vec![section; 4];
    values.push("*b".to_owned());
    let deny = about_agents("Deny", "StringLike", &values);
    assert_eq!(costs(&deny, "b").0, PolicyDecision::Deny, "a short name meets it");
    assert_eq!(costs(&deny, "c").0, PolicyDecision::Allow);
    assert_eq!(costs(&deny, &agent).0, PolicyDecision::Deny);
    // A negated condition that was not evaluated doesn't hold either.
    let allow = about_agents("Allow", "StringNotLike", &values);
    assert_eq!(costs(&allow, "c").0, PolicyDecision::Allow);
    assert_eq!(costs(&allow, &agent).0, PolicyDecision::Deny);
}

#[test]
fn a_variable_is_put_in_only_where_the_text_has_room_for_it() {
    let many = vec!["${aws:UserAgent}${aws:UserAgent}?".to_owned(); 100];
    for agent in ["a".repeat(100), "a".repeat(10_000)] {
        let (decision, steps) = costs(&about_agents("Allow", "StringLike", &many), &agent);
        assert_eq!(decision, PolicyDecision::Undecided);
        let bound = 100 * (40 + agent.len() / 16) + 100;
        assert!(steps <= bound, "{steps} steps for {}", agent.len());
    }
}

#[test]
fn the_steps_of_a_request_are_those_of_all_its_keys() {
    let context = Context::default().with("aws:UserAgent", "a".repeat(10_000));
    let values = vec![format!("*{}?b*", "a".repeat(600)); 10];
    let deny = about_agents("Deny", "StringLike", &values);
    let judge = |context: &Context| {
        let (requester, action) = (&Requester::Anonymous, Action::GetObject);
        let question = Question { requester, action, arn: OBJECT, is_new: false, context };
        deny.evaluate(&question.of_policy())
    };
    let keys = |context: &Context| {
        (0..1000).take_while(|_| judge(context) != PolicyDecision::Deny).count()
    };
    let few = keys(&context);
    assert!((1..20).contains(&few), "{few} keys");
    assert_eq!(judge(&context.clone()), PolicyDecision::Deny, "a clone has no steps of its own");
    let many = Context::default().with("aws:UserAgent", "a".repeat(10_000));
    many.allow_keys(1000);
    assert!((few + 1..200).contains(&keys(&many)), "each key adds steps");
}

#[test]
fn invalid_policies_are_refused_with_s3s_messages() {
    let with = |change: &str| document(&[&format!("{change}, {REST}")]);
    for (text, message) in [
        (String::new(), "Policies must be valid JSON and the first byte must be '{'"),
        ("[]".to_owned(), "Policies must be valid JSON and the first byte must be '{'"),
        ("{".to_owned(), "This policy contains invalid Json"),
        ("{}".to_owned(), "Missing required field Statement"),
        (document(&[]), "Could not parse the policy: Statement is empty!"),
        (r#"{"Statement": [], "Statements": []}"#.to_owned(), "Unknown field Statements"),
        (
            ALLOW_GET.replace("2012-10-17", "2012-10-18"),
            "The policy must contain a valid version string",
        ),
        (document(&[REST]), "Missing required field Effect"),
        (with(r#""Effect": "allow""#), "Invalid effect: allow"),
        (with(r#""Effect": true"#), "Invalid policy syntax."),
        (with(r#""Effect": "Allow", "Note": "x""#), "Unknown field Note"),
        (with(r#""Effect": "Deny", "NotAction": "s3:PutObject""#), "Invalid policy syntax."),
        (with(r#""Effect": "Deny", "Effect": "Allow""#), "This policy contains invalid Json"),
        (with(r#""Effect": "Allow", "Condition": {"Like": {}}"#), "Invalid condition type : Like"),
    ] {
        assert_eq!(refusal(&text), message, "{text}");
    }
    for (element, message) in [
        ("Principal", "Missing required field Principal"),
        ("Action", "Missing required field Action"),
        ("Resource", "Missing required field Resource"),
    ] {
        let text = ALLOW_GET.replace(&format!(r#""{element}":"#), r#""Sid2":"#);
        assert_eq!(refusal(&text), "Unknown field Sid2");
        let start = ALLOW_GET.find(&format!(r#""{element}""#)).unwrap();
        let end = ALLOW_GET[start..].find([',', '}']).unwrap() + start;
        let without = format!("{}\"Condition\": {{}}{}", &ALLOW_GET[..start], &ALLOW_GET[end..]);
        assert_eq!(refusal(&without), message, "{without}");
    }
}

#[test]
fn names_and_sizes_have_their_limits() {
    let named = r#""Sid": "x", "Effect": "Allow", "Principal": "*", "Action": "s3:GetObject",
                   "Resource": "arn:aws:s3:::bkt/*""#;
    let unique = "Statement IDs (SID) in a single policy must be unique.";
    assert_eq!(refusal(&document(&[named, named])), unique);
    let padded = |bytes: usize| format!("{ALLOW_GET}{}", " ".repeat(bytes - ALLOW_GET.len()));
    assert!(Policy::parse(padded(POLICY_BYTES_MAX).as_bytes(), "bkt").is_ok());
    assert!(refusal(&padded(POLICY_BYTES_MAX + 1)).contains("exceeds the maximum allowed size"));
    assert!(Policy::parse(&[b'{', 0xff, b'}'], "bkt").is_err());
}

#[test]
fn resources_lie_in_the_bucket() {
    let of = |action: &str, resource: &str| {
        let text = document(&[&format!(
            r#""Effect": "Allow", "Principal": "*", "Action": "{action}", "Resource": {resource}"#
        )]);
        Policy::parse(text.as_bytes(), "bkt").map(drop).map_err(|error| error.to_string())
    };
    for (action, resource) in [
        ("s3:GetObject", r#""arn:aws:s3:::bkt/a/*""#),
        ("s3:GetObject", r#""arn:aws:s3:::bkt*""#),
        ("s3:GetObject", r#""arn:aws:s3:::*""#),
        ("s3:ListBucket", r#"["arn:aws:s3:::*", "arn:aws:s3:::*/*"]"#),
        ("s3:*", r#""arn:aws:s3:::bkt""#),
        ("s3:GetObject", r#""*""#),
    ] {
        assert_eq!(of(action, resource), Ok(()), "{action} {resource}");
    }
    let invalid = "Policy has invalid resource".to_owned();
    for resource in [
        r#""arn:aws:s3:::other/*""#,
        r#""arn:aws:s3:::bkt2/*""#,
        r#"["arn:aws:s3:::bkt/*", "arn:aws:s3:::other/*"]"#,
        r#""bkt/*""#,
        r#""arn:aws:ec2:::bkt/*""#,
        r#""arn:aws:s3:::bkt/""#,
        "[]",
        "{}",
        r#""""#,
    ] {
        assert_eq!(of("s3:GetObject", resource), Err(invalid.clone()), "{resource}");
    }
    let unfit = "Action does not apply to any resource(s) in statement".to_owned();
    assert_eq!(of("s3:GetObject", r#""arn:aws:s3:::bkt""#), Err(unfit.clone()));
    assert_eq!(of("s3:ListBucket", r#""arn:aws:s3:::bkt/*""#), Err(unfit.clone()));
    assert_eq!(of("s3:CreateBucket", r#""arn:aws:s3:::bkt/*""#), Err(unfit));
}

#[test]
fn policies_for_any_principal_are_public() {
    let is_public = |statement: &str| policy(&document(&[statement])).is_public();
    let allow = |principal: &str, more: &str| {
        format!(
            r#""Effect": "Allow", "Principal": {principal}, "Action": "s3:GetObject",
               "Resource": "arn:aws:s3:::bkt/*" {more}"#
        )
    };
    assert!(is_public(&allow(r#""*""#, "")));
    assert!(is_public(&allow(r#"{"AWS": ["alice", "*"]}"#, "")));
    assert!(!is_public(&allow(r#"{"AWS": "arn:aws:iam::alice:root"}"#, "")));
    let address = |network: &str| {
        format!(r#", "Condition": {{"IpAddress": {{"aws:SourceIp": "{network}"}}}}"#)
    };
    assert!(!is_public(&allow(r#""*""#, &address("10.0.0.0/32"))));
    assert!(is_public(&allow(r#""*""#, &address("0.0.0.0/1"))));
    let referer = r#", "Condition": {"StringLike": {"aws:Referer": "https://example.com/*"}}"#;
    assert!(is_public(&allow(r#""*""#, referer)));
    assert!(!is_public(&format!(r#""Effect": "Deny", {REST}"#)));
    let both = policy(&document(&[&allow(r#""*""#, ""), &allow(r#"{"AWS": "bob"}"#, "")]));
    assert!(both.is_public());
}

#[test]
fn existing_tags_are_read_only_for_conditions_on_them() {
    assert!(!policy(ALLOW_GET).reads_existing_tags());
    let condition = r#""Condition": {"StringEquals": {"s3:ExistingObjectTag/a": "1"}}"#;
    assert!(
        policy(&document(&[&format!(r#""Effect": "Allow", {REST}, {condition}"#)]))
            .reads_existing_tags()
    );
    let key = REST.replace("bkt/*", "bkt/${s3:ExistingObjectTag/folder}/*");
    assert!(policy(&document(&[&format!(r#""Effect": "Allow", {key}"#)])).reads_existing_tags());
}

proptest! {
    /// A deny wins, whatever else the policy contains and in any order.
    #[test]
    fn no_order_undoes_a_deny(mut allows in 0_usize..5, at in 0_usize..5) {
        allows = allows.max(1);
        let allow = format!(r#""Effect": "Allow", {REST}"#);
        let deny = format!(r#""Effect": "Deny", {REST}"#);
        let mut statements = vec![allow.as_str(); allows];
        statements.insert(at.min(allows), &deny);
        let denied = policy(&document(&statements));
        prop_assert_eq!(judge(&denied, "bob", Action::GetObject, "bkt/k"), PolicyDecision::Deny);
    }

    #[test]
    fn no_bytes_break_the_reader(document in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Policy::parse(&document, "bkt").is_err());
    }

    /// Documents that are nearly valid are read or refused, without a panic.
    #[test]
    fn no_change_breaks_the_reader(at in 0_usize..170, byte in any::<u8>()) {
        let mut bytes = ALLOW_GET.as_bytes().to_vec();
        let at = at.min(bytes.len() - 1);
        bytes[at] = byte;
        if let Ok(policy) = Policy::parse(&bytes, "bkt") {
            judge(&policy, "bob", Action::GetObject, "bkt/k");
        }
    }
}
