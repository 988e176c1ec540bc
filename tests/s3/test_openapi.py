"""The OpenAPI document of the admin API is one that tools can read."""

from openapi_spec_validator import OpenAPIV31SpecValidator

from harness.admin import admin


def test_the_document_is_valid(server):
    document = admin(server.admin_port, "openapi")
    errors = [f"{list(error.absolute_path)}: {error.message}" for error in OpenAPIV31SpecValidator(document).iter_errors()]
    assert not errors
    assert "/admin/v1/status" in document["paths"]
