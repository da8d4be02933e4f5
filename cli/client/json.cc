#include "cli/client/json.h"

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <cstdio>
#include <functional>

#include "base/error.h"
#include "cli/output/text.h"

namespace moorage::cli {
namespace json = boost::json;

namespace {

const json::value* walk(const json::value* place, std::string_view path) {
  while (!path.empty() && place != nullptr) {
    const std::string_view name = path.substr(0, path.find('.'));
    const json::object* object = place->if_object();
    place = object == nullptr ? nullptr : object->if_contains({name.data(), name.size()});
    path.remove_prefix(std::min(name.size() + 1, path.size()));
  }
  return place;
}

// "[1,2]" of the items as `text_of` writes them.
template <typename Item, typename TextOf>
std::string list_of(const std::vector<Item>& items, const TextOf& text_of) {
  std::string list;
  for (const Item& item : items) list += (list.empty() ? "" : ",") + text_of(item);
  return "[" + list + "]";
}

std::string quoted(std::string_view name, std::string_view text) {
  if (!is_utf8(text)) {
    throw Error(Code::invalid_argument,
                std::string(name) + ": '" + printable(text) + "' is not UTF-8 text",
                "pass such bytes in a file or standard input instead");
  }
  return json::serialize(json::string_view(text.data(), text.size()));
}

// Clamps: a double may be beyond any int64, or NaN.
int64_t whole_part(double number) {
  constexpr double kBeyond = 0x1p63;
  if (number >= kBeyond) return INT64_MAX;
  return number >= -kBeyond ? static_cast<int64_t>(number) : INT64_MIN;
}

}  // namespace

Json Json::parse(std::string_view text) {
  json::error_code failure;
  json::parse_options options;
  options.max_depth = 64;
  json::value value = json::parse({text.data(), text.size()}, failure, {}, options);
  if (failure) {
    throw Error(Code::corrupted, "the daemon's answer is not JSON: " + failure.message(),
                "another program may be listening on this socket");
  }
  auto root = std::make_shared<const json::value>(std::move(value));
  const json::value* place = root.get();
  return Json(std::move(root), place);
}

const json::value* Json::find(std::string_view path) const {
  const json::value* found = walk(place_, path);
  return found == nullptr || found->is_null() ? nullptr : found;
}

Json Json::at(std::string_view path) const { return Json(root_, walk(place_, path)); }

bool Json::has(std::string_view path) const { return find(path) != nullptr; }

std::string Json::text(std::string_view path, std::string_view fallback) const {
  const json::value* found = find(path);
  if (found == nullptr) return std::string(fallback);
  if (const json::string* string = found->if_string()) return {string->data(), string->size()};
  return json::serialize(*found);
}

int64_t Json::number(std::string_view path, int64_t fallback) const {
  const json::value* found = find(path);
  if (found == nullptr) return fallback;
  if (const int64_t* number = found->if_int64()) return *number;
  if (const uint64_t* number = found->if_uint64()) return static_cast<int64_t>(*number);
  if (const double* number = found->if_double()) return whole_part(*number);
  const json::string* string = found->if_string();
  int64_t number = 0;
  if (string == nullptr) return fallback;
  auto [end, failure] = std::from_chars(string->data(), string->data() + string->size(), number);
  return failure == std::errc() ? number : fallback;
}

double Json::real(std::string_view path) const {
  const json::value* found = find(path);
  return found != nullptr && found->is_double() ? found->get_double()
                                                : static_cast<double>(number(path));
}

bool Json::flag(std::string_view path) const {
  const json::value* found = find(path);
  return found != nullptr && found->is_bool() && found->get_bool();
}

std::vector<Json> Json::items(std::string_view path) const {
  const json::value* found = find(path);
  std::vector<Json> out;
  if (found == nullptr || !found->is_array()) return out;
  for (const json::value& item : found->get_array()) out.push_back(Json(root_, &item));
  return out;
}

std::vector<std::string> Json::texts(std::string_view path) const {
  std::vector<std::string> out;
  for (const Json& item : items(path)) out.push_back(item.text());
  return out;
}

std::string Json::bytes(const std::string& name) const {
  const std::string encoded = name + "_b64";
  return has(encoded) ? base64_decode(text(encoded)) : text(name);
}

std::vector<std::string> Json::byte_list(const std::string& name) const {
  const std::string encoded = name + "_b64";
  if (!has(encoded)) return texts(name);
  std::vector<std::string> out;
  for (const std::string& item : texts(encoded)) out.push_back(base64_decode(item));
  return out;
}

std::map<std::string, std::string> Json::members(std::string_view path) const {
  const json::value* found = find(path);
  std::map<std::string, std::string> out;
  if (found == nullptr || !found->is_object()) return out;
  for (const auto& member : found->get_object()) {
    out[std::string(member.key())] = Json(root_, &member.value()).text();
  }
  return out;
}

bool Json::is_object(std::string_view path) const {
  const json::value* found = find(path);
  return found != nullptr && found->is_object();
}

std::string Json::dump() const { return place_ == nullptr ? "null" : json::serialize(*place_); }

std::string& JsonObject::field(std::string_view name) {
  if (!fields_.empty()) fields_ += ',';
  fields_ += quoted("field name", name) + ":";
  return fields_;
}

JsonObject& JsonObject::add(std::string_view name, std::string_view text) {
  field(name) += quoted(name, text);
  return *this;
}

JsonObject& JsonObject::add(std::string_view name, int64_t number) {
  field(name) += std::to_string(number);
  return *this;
}

JsonObject& JsonObject::add(std::string_view name, double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", number);
  field(name) += text;
  return *this;
}

JsonObject& JsonObject::add(std::string_view name, bool flag) {
  field(name) += flag ? "true" : "false";
  return *this;
}

JsonObject& JsonObject::add(std::string_view name, const std::vector<std::string>& texts) {
  field(name) += list_of(texts, [&](const std::string& text) { return quoted(name, text); });
  return *this;
}

JsonObject& JsonObject::add(std::string_view name,
                            const std::map<std::string, std::string>& members) {
  JsonObject object;
  for (const auto& [key, value] : members) object.add(key, value);
  return add(name, object);
}

JsonObject& JsonObject::add(std::string_view name, const JsonObject& object) {
  field(name) += object.str();
  return *this;
}

JsonObject& JsonObject::add(std::string_view name, const std::vector<JsonObject>& objects) {
  field(name) += list_of(objects, std::mem_fn(&JsonObject::str));
  return *this;
}

JsonObject& JsonObject::add(std::string_view name, const Json& value) {
  field(name) += value.dump();
  return *this;
}

JsonObject& JsonObject::add(std::string_view name, const std::vector<Json>& values) {
  field(name) += list_of(values, std::mem_fn(&Json::dump));
  return *this;
}

JsonObject& JsonObject::add_bytes(const std::string& name, const std::string& bytes) {
  return is_utf8(bytes) ? add(name, bytes) : add(name + "_b64", base64_encode(bytes));
}

// A long list goes as base64: escapes of JSON could make it six times as long.
JsonObject& JsonObject::add_bytes(const std::string& name, const std::vector<std::string>& list) {
  constexpr size_t kMostPlain = 256 << 10;
  size_t bytes = 0;
  for (const std::string& one : list) bytes += one.size();
  if (bytes <= kMostPlain && std::all_of(list.begin(), list.end(), is_utf8)) return add(name, list);
  std::vector<std::string> encoded;
  for (const std::string& one : list) encoded.push_back(base64_encode(one));
  return add(name + "_b64", encoded);
}

}  // namespace moorage::cli
