//! Routes of the admin API together with their description, from which the OpenAPI document is
//! made. A route can't be added without its description, nor the other way round.

use std::collections::BTreeSet;

use axum::Router;
use axum::body::Bytes;
use axum::handler::Handler;
use axum::http::{Method, header};
use axum::routing::{MethodFilter, get, on};
use martlet_admin_api::{DOCUMENT, ErrorReply};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::access::RouteAccess;

/// Version of the OpenAPI specification that documents follow.
const OPENAPI: &str = "3.1.0";
/// Begin of the paths of the admin API.
const BASE: &str = "/admin/v1/";
/// Maximum bytes of a body, unless the description of a route permits more.
pub(crate) const BODY_BYTES_MAX: usize = 1 << 20;
const JSON: &str = "application/json";
/// Names of the security schemes in documents.
const TOKEN: &str = "token";
const SIGNATURE: &str = "signature";

/// Method of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ApiMethod {
    /// Reads.
    Get,
    /// Creates or starts.
    Post,
    /// Changes or replaces.
    Put,
    /// Deletes or stops.
    Delete,
}

impl ApiMethod {
    fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
            Self::Put => "put",
            Self::Delete => "delete",
        }
    }

    fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Post => MethodFilter::POST,
            Self::Put => MethodFilter::PUT,
            Self::Delete => MethodFilter::DELETE,
        }
    }
}

/// Description of an operation: the rule of its access, a sentence, and the types of its parameters,
/// body and reply.
#[derive(Clone, Copy)]
pub struct ApiDoc {
    access: RouteAccess,
    summary: &'static str,
    query: Option<SchemaSource>,
    body: Option<SchemaSource>,
    body_bytes_max: usize,
    /// True if the operation changes nothing, whatever its method.
    computes: bool,
    reply: ReplyDoc,
}

type SchemaSource = fn(&mut SchemaGenerator) -> Schema;

#[derive(Clone, Copy)]
enum ReplyDoc {
    /// JSON value.
    Json(SchemaSource),
    /// Text of this media type.
    Text(&'static str),
    /// Bytes of this media type.
    Bytes(&'static str),
}

impl ApiDoc {
    /// Describes an operation that replies with a JSON value of type `R`. The gate applies the rule
    /// `access` to each request.
    pub fn reply<R: JsonSchema>(access: RouteAccess, summary: &'static str) -> Self {
        let reply = ReplyDoc::Json(SchemaGenerator::subschema_for::<R>);
        Self::of(access, summary, reply)
    }

    /// Describes an operation that replies with bytes of this media type.
    pub fn bytes(access: RouteAccess, summary: &'static str, media: &'static str) -> Self {
        let reply = ReplyDoc::Bytes(media);
        Self::of(access, summary, reply)
    }

    /// Describes an operation without authentication that replies with text of this media type.
    pub(crate) fn text(summary: &'static str, media: &'static str) -> Self {
        let (access, reply) = (RouteAccess::Public, ReplyDoc::Text(media));
        Self::of(access, summary, reply)
    }

    /// Describes an operation without parameters and body.
    fn of(access: RouteAccess, summary: &'static str, reply: ReplyDoc) -> Self {
        Self {
            access,
            summary,
            query: None,
            body: None,
            body_bytes_max: BODY_BYTES_MAX,
            computes: false,
            reply,
        }
    }

    /// Adds the query parameters: the fields of `Q`.
    #[must_use]
    pub fn query<Q: JsonSchema>(self) -> Self {
        Self { query: Some(Q::json_schema), ..self }
    }

    /// Adds a JSON body of type `B`.
    #[must_use]
    pub fn body<B: JsonSchema>(self) -> Self {
        Self { body: Some(SchemaGenerator::subschema_for::<B>), ..self }
    }

    /// Sets the maximum bytes of a body, instead of [`BODY_BYTES_MAX`]. It holds for principals that
    /// the rule of the route admits.
    #[must_use]
    pub fn body_bytes_max(self, body_bytes_max: usize) -> Self {
        Self { body_bytes_max, ..self }
    }

    /// Marks an operation that computes its reply from the body and changes nothing, though its method
    /// is POST. Such requests have no audit records, and end with their connection.
    #[must_use]
    pub fn computes(self) -> Self {
        Self { computes: true, ..self }
    }
}

/// Rule of a route, as the gate needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteRule {
    method: ApiMethod,
    path: &'static str,
    /// Rule of the route's access.
    pub(crate) access: RouteAccess,
    /// True if the handler reads its parameters from a JSON body.
    pub(crate) has_body: bool,
    /// Maximum bytes of a body.
    pub(crate) body_bytes_max: usize,
    /// True if the operation changes nothing, whatever its method.
    pub(crate) computes: bool,
}

impl RouteRule {
    /// Returns method and path, such as `GET /admin/v1/status`.
    pub(crate) fn name(self) -> String {
        format!("{} {}", self.method.name().to_uppercase(), self.path)
    }

    /// Returns true if the rule is that of a path.
    pub(crate) fn is_at(&self, path: &str) -> bool {
        self.path == path
    }

    /// Returns true if the route has this method. Routes that read have HEAD too.
    pub(crate) fn has(&self, method: &Method) -> bool {
        let name = if method == Method::HEAD { "GET" } else { method.as_str() };
        self.method.name().eq_ignore_ascii_case(name)
    }
}

/// Operation of the admin API.
#[derive(Clone)]
struct ApiOperation {
    method: ApiMethod,
    path: &'static str,
    doc: ApiDoc,
}

/// Routes of the admin API, with their description. `S` is the state that the routes lack.
#[derive(Clone)]
pub struct ApiRoutes<S = ()> {
    router: Router<S>,
    operations: Vec<ApiOperation>,
}

impl<S: Clone + Send + Sync + 'static> Default for ApiRoutes<S> {
    fn default() -> Self {
        Self { router: Router::new(), operations: Vec::new() }
    }
}

impl<S: Clone + Send + Sync + 'static> ApiRoutes<S> {
    /// Makes an empty set of routes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a route with its description. Panics if the path has the method already.
    #[must_use]
    pub fn on<H, T>(mut self, method: ApiMethod, path: &'static str, doc: ApiDoc, run: H) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        self.operations.push(ApiOperation { method, path, doc });
        let router = self.router.route(path, on(method.filter(), run));
        Self { router, ..self }
    }

    /// Adds a GET route.
    #[must_use]
    pub fn get<H, T>(self, path: &'static str, doc: ApiDoc, run: H) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        self.on(ApiMethod::Get, path, doc, run)
    }

    /// Adds a POST route.
    #[must_use]
    pub fn post<H, T>(self, path: &'static str, doc: ApiDoc, run: H) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        self.on(ApiMethod::Post, path, doc, run)
    }

    /// Adds a PUT route.
    #[must_use]
    pub fn put<H, T>(self, path: &'static str, doc: ApiDoc, run: H) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        self.on(ApiMethod::Put, path, doc, run)
    }

    /// Adds a DELETE route.
    #[must_use]
    pub fn delete<H, T>(self, path: &'static str, doc: ApiDoc, run: H) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        self.on(ApiMethod::Delete, path, doc, run)
    }

    /// Adds the routes of another set.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.operations.extend(other.operations);
        Self { router: self.router.merge(other.router), ..self }
    }

    /// Gives the routes their state.
    pub fn with_state<S2>(self, state: S) -> ApiRoutes<S2> {
        ApiRoutes { router: self.router.with_state(state), operations: self.operations }
    }
}

impl<S: Clone + Send + Sync + 'static> ApiRoutes<S> {
    /// Returns the rules of all routes.
    pub(crate) fn rules(&self) -> Vec<RouteRule> {
        self.operations.iter().map(ApiOperation::rule).collect()
    }

    /// Returns the routes alone.
    pub(crate) fn into_router(self) -> Router<S> {
        self.router
    }
}

impl ApiRoutes {
    /// Adds a route that replies with the document of all routes, also of those that are served
    /// beside these.
    #[must_use]
    pub(crate) fn with_document<P>(mut self, beside: ApiRoutes<P>) -> Self {
        let doc = ApiDoc::reply::<Map<String, Value>>(RouteAccess::Anyone, "Show this document");
        self.operations.extend(beside.operations);
        self.operations.push(ApiOperation { method: ApiMethod::Get, path: DOCUMENT, doc });
        let document = Bytes::from(self.document().to_string());
        let reply = move || async move { ([(header::CONTENT_TYPE, JSON)], document) };
        Self { router: self.router.route(DOCUMENT, get(reply)), ..self }
    }

    /// Returns the OpenAPI document of the routes.
    pub fn document(&self) -> Value {
        let settings = SchemaSettings::draft2020_12()
            .with(|settings| settings.definitions_path = "/components/schemas".into());
        let mut schemas = settings.into_generator();
        let refusal = json!({
            "description": "Refusal, with its reason",
            "content": content(&schemas.subschema_for::<ErrorReply>()),
        });
        let mut paths = Map::new();
        for operation in &self.operations {
            let path = paths.entry(operation.path).or_insert_with(|| json!({}));
            path[operation.method.name()] = operation.describe(&mut schemas);
        }
        let schemes = json!({
            TOKEN: {
                "type": "http",
                "scheme": "bearer",
                "description": "Token of a session, of the root secret or of the cluster's key",
            },
            SIGNATURE: {
                "type": "http",
                "scheme": "AWS4-HMAC-SHA256",
                "description": "SigV4 of an admin key, for the service admin in the region martlet",
            },
        });
        json!({
            "openapi": OPENAPI,
            "info": {
                "title": "Martlet admin API",
                "version": env!("CARGO_PKG_VERSION"),
                "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            },
            "security": [{ TOKEN: [] }, { SIGNATURE: [] }],
            "paths": paths,
            "components": {
                "schemas": schemas.take_definitions(true),
                "responses": { "refusal": refusal },
                "securitySchemes": schemes,
            },
        })
    }

    /// Returns methods and paths, such as `GET /admin/v1/status`.
    pub fn operations(&self) -> BTreeSet<String> {
        let name = |it: &ApiOperation| format!("{} {}", it.method.name().to_uppercase(), it.path);
        self.operations.iter().map(name).collect()
    }
}

impl ApiOperation {
    fn rule(&self) -> RouteRule {
        let ApiDoc { access, body, body_bytes_max, computes, .. } = self.doc;
        let (method, path, has_body) = (self.method, self.path, body.is_some());
        RouteRule { method, path, access, has_body, body_bytes_max, computes }
    }

    fn describe(&self, schemas: &mut SchemaGenerator) -> Value {
        let ApiDoc { access, summary, query, body, reply, computes, .. } = self.doc;
        let rest = self.path.strip_prefix(BASE).unwrap_or(self.path).trim_start_matches('/');
        let words = rest.replace(['/', '.', '-'], "_").replace(['{', '}'], "");
        let tag = rest.split('/').next().unwrap_or_default();
        let mut operation = json!({
            "operationId": format!("{}_{words}", self.method.name()),
            "summary": summary,
            "tags": [tag],
            "responses": {
                "200": { "description": "Reply", "content": reply.describe(schemas) },
                "default": { "$ref": "#/components/responses/refusal" },
            },
        });
        if access == RouteAccess::Public {
            operation["security"] = json!([]);
        } else {
            let roles: Vec<&str> = access.roles().iter().map(|role| role.name()).collect();
            operation["x-roles"] = json!(roles);
        }
        if computes {
            operation["x-computes"] = json!(true);
        }
        if let Some(field) = access.tenant_field() {
            operation["x-tenant-of"] = json!(field.name());
        }
        let mut parameters = path_parameters(self.path);
        if let Some(query) = query {
            parameters.extend(query_parameters(query(schemas)));
        }
        if !parameters.is_empty() {
            operation["parameters"] = Value::from(parameters);
        }
        if let Some(body) = body {
            let content = content(&body(schemas));
            operation["requestBody"] = json!({ "required": true, "content": content });
        }
        operation
    }
}

impl ReplyDoc {
    fn describe(self, schemas: &mut SchemaGenerator) -> Value {
        match self {
            Self::Json(schema) => content(&schema(schemas)),
            Self::Text(media) => json!({ media: { "schema": { "type": "string" } } }),
            // OpenAPI 3.1 has no schema for bytes.
            Self::Bytes(media) => json!({ media: {} }),
        }
    }
}

fn content(schema: &Schema) -> Value {
    json!({ JSON: { "schema": schema } })
}

/// Parameters in braces of a path.
fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|word| word.strip_prefix('{')?.strip_suffix('}'));
    let parameter = |name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } });
    names.map(parameter).collect()
}

/// Fields of a struct as query parameters. A field that may be absent is no longer nullable.
fn query_parameters(schema: Schema) -> Vec<Value> {
    let schema = schema.to_value();
    let required: BTreeSet<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let fields = schema["properties"].as_object().cloned().unwrap_or_default();
    let parameter = |(name, mut field): (String, Value)| {
        let description = field.as_object_mut().and_then(|field| field.remove("description"));
        let mut parameter = json!({
            "name": name,
            "in": "query",
            "required": required.contains(name.as_str()),
            "schema": without_null(field),
        });
        if let Some(description) = description {
            parameter["description"] = description;
        }
        parameter
    };
    fields.into_iter().map(parameter).collect()
}

fn without_null(mut schema: Value) -> Value {
    if let Some(types) = schema["type"].as_array() {
        let types: Vec<Value> = types.iter().filter(|it| *it != "null").cloned().collect();
        if let [one] = types.as_slice() {
            schema["type"] = one.clone();
        }
    }
    if schema["default"].is_null()
        && let Some(schema) = schema.as_object_mut()
    {
        schema.remove("default");
    }
    schema
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use axum::body::Body;
    use axum::extract::Query;
    use axum::http::{Request, StatusCode};
    use serde::{Deserialize, Serialize};
    use tower::ServiceExt;

    use super::*;
    use crate::access::TenantField;

    /// Parameters of a request.
    #[derive(Deserialize, JsonSchema)]
    struct ItemQuery {
        /// Name of the item.
        name: String,
        #[expect(dead_code, reason = "the document lists the field")]
        limit: Option<u32>,
    }

    /// Item of a list.
    #[derive(Serialize, JsonSchema)]
    struct Item {
        name: String,
    }

    fn routes() -> ApiRoutes {
        let show = |Query(ItemQuery { name, .. }): Query<ItemQuery>| async move { name };
        let tenant = RouteAccess::TenantChange(TenantField::Tenant("name"));
        let show_doc = ApiDoc::reply::<Item>(RouteAccess::Read, "Show an item");
        let set_doc = ApiDoc::reply::<Item>(tenant, "Set an item");
        let job_doc = ApiDoc::reply::<Vec<Item>>(RouteAccess::Operate, "Show a job");
        ApiRoutes::new()
            .get("/admin/v1/item", show_doc.query::<ItemQuery>(), show)
            .put("/admin/v1/item", set_doc.body::<Item>(), || async {})
            .merge(ApiRoutes::new().get("/admin/v1/job/{id}", job_doc, || async {}))
    }

    /// Collects all references of a document.
    fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[tokio::test]
    async fn the_document_is_served_and_lists_itself_and_what_is_beside_it() {
        let beside = ApiDoc::text("Show the health", "text/plain");
        let beside = ApiRoutes::<u8>::new().get("/healthz", beside, || async {});
        let routes = routes().with_document(beside);
        let request = Request::get(DOCUMENT).body(Body::empty()).unwrap();
        let reply = routes.into_router().oneshot(request).await.unwrap();
        assert_eq!(reply.headers()[header::CONTENT_TYPE], JSON);
        let bytes = axum::body::to_bytes(reply.into_body(), usize::MAX).await.unwrap();
        let document: Value = serde_json::from_slice(&bytes).unwrap();
        let paths = document["paths"].as_object().unwrap();
        assert_eq!(paths.len(), 4);
        assert_eq!(paths[DOCUMENT]["get"]["operationId"], "get_openapi_json");
        assert_eq!(paths["/healthz"]["get"]["security"], json!([]));
        assert!(
            paths["/admin/v1/item"]["get"]["security"].is_null(),
            "the token is for all others"
        );
    }

    #[test]
    fn a_document_has_the_types_of_its_operations_once() {
        let document = routes().document();
        let operation = &document["paths"]["/admin/v1/item"]["get"];
        assert_eq!(operation["operationId"], "get_item");
        let expected = json!([
            { "name": "limit", "in": "query", "required": false,
              "schema": { "type": "integer", "format": "uint32", "minimum": 0 } },
            { "name": "name", "in": "query", "required": true,
              "description": "Name of the item.", "schema": { "type": "string" } },
        ]);
        assert_eq!(operation["parameters"], expected);
        let reply = &operation["responses"]["200"]["content"]["application/json"]["schema"];
        assert_eq!(reply["$ref"], "#/components/schemas/Item");
        assert_eq!(operation["x-roles"], json!(["viewer", "operator"]));
        let put = &document["paths"]["/admin/v1/item"]["put"];
        assert_eq!(put["x-roles"], json!(["operator", "tenant-admin"]));
        assert_eq!(put["x-tenant-of"], "name");
        let put = &put["requestBody"];
        assert_eq!(put["content"]["application/json"]["schema"], *reply);
        assert_eq!(document["paths"]["/admin/v1/job/{id}"]["get"]["parameters"][0]["in"], "path");
        let schemas = document["components"]["schemas"].as_object().unwrap();
        assert_eq!(schemas["Item"]["description"], "Item of a list.");
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
        }
    }

    #[tokio::test]
    async fn routes_and_descriptions_are_the_same_set() {
        let routes = routes();
        let listed = ["GET /admin/v1/item", "GET /admin/v1/job/{id}", "PUT /admin/v1/item"];
        assert_eq!(routes.operations(), listed.map(str::to_owned).into());
        let status = async |method: &str, path: &str| {
            let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
            routes.clone().into_router().oneshot(request).await.unwrap().status()
        };
        let mut seen = BTreeMap::new();
        for method in ["GET", "PUT", "POST", "DELETE"] {
            seen.insert(method, status(method, "/admin/v1/item?name=x").await);
        }
        let refused = StatusCode::METHOD_NOT_ALLOWED;
        let expected = [("GET", StatusCode::OK), ("PUT", StatusCode::OK)];
        assert_eq!(
            seen,
            expected.into_iter().chain([("POST", refused), ("DELETE", refused)]).collect()
        );
        assert_eq!(status("GET", "/admin/v1/other").await, StatusCode::NOT_FOUND);
    }
}
