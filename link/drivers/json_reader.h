// Reads the JSON of a provider: bounded depth, every wrong type is Error(corrupted) by name.
// Unknown fields are ignored, as providers add some.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <string_view>

#include "link/driver.h"

namespace moorage::link {

using JsonObject = boost::json::object;

boost::json::value parse_answer(std::string_view text);
const JsonObject& object_in(const boost::json::value& value, std::string_view what);
// The field's object or array; nullptr: absent or null.
const JsonObject* object_field(const JsonObject& object, std::string_view name);
const boost::json::array* array_field(const JsonObject& object, std::string_view name);
// Empty: absent or null.
std::string text_field(const JsonObject& object, std::string_view name);
std::string text_field(const JsonObject& object, std::string_view name, std::string_view absent);
int64_t number_field(const JsonObject& object, std::string_view name, int64_t absent);
bool flag_field(const JsonObject& object, std::string_view name, bool absent);
// Becomes part of URLs: letters, digits, '-' and '_'.
std::string id_field(const JsonObject& object, std::string_view name);
Labels labels_field(const JsonObject& object, std::string_view name);

// Whether `labels` has all of `wanted`: a provider's filter may be wrong.
bool has_labels(const Labels& labels, const Labels& wanted);
// Words of a provider or machine for a message: one line of printable text, cut.
std::string printable(std::string_view text);

}  // namespace moorage::link
