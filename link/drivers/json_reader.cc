#include "link/drivers/json_reader.h"

#include <algorithm>

#include "base/error.h"

namespace moorage::link {
namespace {

namespace json = boost::json;

constexpr size_t kMaxDepth = 16;
constexpr size_t kMaxText = 64 << 10;
constexpr size_t kMaxId = 128;
constexpr size_t kMaxLabels = 64;
constexpr size_t kMaxShown = 300;

[[noreturn]] void refuse(std::string_view name, const char* wanted) {
  throw Error(Code::corrupted, "its answer is invalid: " + std::string(name) + " " + wanted);
}

// nullptr: absent or null.
const json::value* field(const JsonObject& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

}  // namespace

json::value parse_answer(std::string_view text) {
  json::parse_options options;
  options.max_depth = kMaxDepth;
  boost::system::error_code error;
  json::value value = json::parse(text, error, {}, options);
  if (error) throw Error(Code::corrupted, "its answer is invalid JSON: " + error.message());
  return value;
}

const JsonObject& object_in(const json::value& value, std::string_view what) {
  if (!value.is_object()) refuse(what, "must be an object");
  return value.get_object();
}

const JsonObject* object_field(const JsonObject& object, std::string_view name) {
  const json::value* value = field(object, name);
  return value == nullptr ? nullptr : &object_in(*value, name);
}

const json::array* array_field(const JsonObject& object, std::string_view name) {
  const json::value* value = field(object, name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) refuse(name, "must be an array");
  return &value->get_array();
}

std::string text_field(const JsonObject& object, std::string_view name) {
  const json::value* value = field(object, name);
  if (value == nullptr) return {};
  if (!value->is_string()) refuse(name, "must be a string");
  if (value->get_string().size() > kMaxText) refuse(name, "is too long");
  return std::string(value->get_string());
}

std::string text_field(const JsonObject& object, std::string_view name, std::string_view absent) {
  std::string text = text_field(object, name);
  return text.empty() ? std::string(absent) : text;
}

bool flag_field(const JsonObject& object, std::string_view name, bool absent) {
  const json::value* value = field(object, name);
  if (value == nullptr) return absent;
  if (!value->is_bool()) refuse(name, "must be true or false");
  return value->get_bool();
}

int64_t number_field(const JsonObject& object, std::string_view name, int64_t absent) {
  const json::value* value = field(object, name);
  if (value == nullptr) return absent;
  if (!value->is_int64()) refuse(name, "must be an integer");
  return value->get_int64();
}

std::string id_field(const JsonObject& object, std::string_view name) {
  std::string id = text_field(object, name);
  const bool plain = std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_';
  });
  if (id.empty() || id.size() > kMaxId || !plain) refuse(name, "is not an id");
  return id;
}

Labels labels_field(const JsonObject& object, std::string_view name) {
  Labels labels;
  const JsonObject* found = object_field(object, name);
  if (found == nullptr) return labels;
  for (const auto& [key, value] : *found) {
    if (labels.size() == kMaxLabels) break;
    if (value.is_string()) labels.emplace(key, value.get_string());
  }
  return labels;
}

bool has_labels(const Labels& labels, const Labels& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&labels](const auto& one) {
    const auto found = labels.find(one.first);
    return found != labels.end() && found->second == one.second;
  });
}

std::string printable(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    if (shown.size() == kMaxShown) return shown + "...";
    const bool plain = c >= ' ' && c < 0x7f;
    if (plain || (!shown.empty() && shown.back() != ' ')) shown += plain ? c : ' ';
  }
  while (shown.ends_with(' ')) shown.pop_back();
  return shown;
}

}  // namespace moorage::link
