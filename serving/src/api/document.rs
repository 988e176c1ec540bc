//! OpenAPI document of the admin API, made from the descriptions of routes.

use std::collections::BTreeSet;

use martlet_admin_api::ErrorReply;
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::{ApiDoc, ApiOperation, JSON, ReplyDoc};
use crate::access::RouteAccess;

/// Version of the OpenAPI specification that documents follow.
const OPENAPI: &str = "3.1.0";
/// Begin of the paths of the admin API.
const BASE: &str = "/admin/v1/";
/// Names of the security schemes in documents.
const TOKEN: &str = "token";
const SIGNATURE: &str = "signature";

/// Returns the document of operations.
pub(super) fn of(operations: &[ApiOperation]) -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut schemas = settings.into_generator();
    let refusal = json!({
        "description": "Refusal, with its reason",
        "content": content(&schemas.subschema_for::<ErrorReply>()),
    });
    let mut paths = Map::new();
    for operation in operations {
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

impl ApiOperation {
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
    use super::super::tests::routes;
    use super::*;

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
}
