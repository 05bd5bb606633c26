//! Request and response bodies of the admin API. JSON, camelCase. Errors are problem details (RFC 9457).
