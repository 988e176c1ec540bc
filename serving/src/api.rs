//! Routes of the admin API together with their description, from which the OpenAPI document is
//! made. A route can't be added without its description, nor the other way round.

mod document;

use std::collections::BTreeSet;

use axum::Router;
use axum::body::Bytes;
use axum::handler::Handler;
use axum::http::{Method, header};
use axum::routing::{MethodFilter, get, on};
use martlet_admin_api::DOCUMENT;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value};

use crate::access::RouteAccess;

/// Maximum bytes of a body, unless the description of a route permits more.
pub(crate) const BODY_BYTES_MAX: usize = 1 << 20;
const JSON: &str = "application/json";

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
        document::of(&self.operations)
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
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use axum::body::Body;
    use axum::extract::Query;
    use axum::http::{Request, StatusCode};
    use serde::{Deserialize, Serialize};
    use serde_json::json;
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

    pub(super) fn routes() -> ApiRoutes {
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
