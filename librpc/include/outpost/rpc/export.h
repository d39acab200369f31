#pragma once

/// Marks what the shared library outpost_client offers; all else in it is hidden.
#define OUTPOST_CLIENT_API __attribute__((visibility("default")))
