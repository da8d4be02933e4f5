// From an empty file, or an older schema, to the current one. A new database gets kSchema and the
// names of all migrations; an older one gets the missing migrations in order, each in a transaction
// of its own that also records its name. To change the schema: change schema.sql, and append a
// migration that makes the same change. Names are never reused or reordered.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace moorage::state_db {

class Connection;

struct Migration {
  std::string_view name;
  std::string_view sql;
};

struct SchemaSource {
  std::string_view schema;
  std::span<const Migration> migrations;
};

extern const std::string_view kSchema;  // schema.sql
SchemaSource present_schema();

// Throws unsupported for another program's file or a newer version's. Writes nothing.
void refuse_unknown(Connection& connection, const SchemaSource& source);
// Checks the same, then writes.
void bring_up(Connection& connection, const SchemaSource& source, int64_t wall_ms);

}  // namespace moorage::state_db
