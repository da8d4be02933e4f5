// Reads answers and writes requests. Only json.cc includes Boost.JSON. A Json is a place in a
// parsed document, which it keeps alive; a missing place is null and reads as the fallback.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace boost::json {
class value;
}

namespace moorage::cli {

class Json {
 public:
  Json() = default;
  static Json parse(std::string_view text);  // throws Error(corrupted)

  // `path` is a field name or several with dots between ("repo.name"); "" is this place.
  Json at(std::string_view path) const;
  bool has(std::string_view path) const;  // present and not null
  // Strings unchanged; numbers and booleans as text.
  std::string text(std::string_view path = {}, std::string_view fallback = {}) const;
  // Numbers, also in strings.
  int64_t number(std::string_view path = {}, int64_t fallback = 0) const;
  double real(std::string_view path) const;
  bool flag(std::string_view path) const;
  std::vector<Json> items(std::string_view path = {}) const;  // of an array; else empty
  std::vector<std::string> texts(std::string_view path) const;
  // Arbitrary bytes: "name" when they are UTF-8, otherwise base64 in "name_b64".
  std::string bytes(const std::string& name) const;
  std::vector<std::string> byte_list(const std::string& name) const;
  std::map<std::string, std::string> members(
      std::string_view path) const;  // of an object of strings
  bool is_object(std::string_view path = {}) const;
  std::string dump() const;

 private:
  Json(std::shared_ptr<const boost::json::value> root, const boost::json::value* place)
      : root_(std::move(root)), place_(place) {}
  const boost::json::value* find(std::string_view path) const;  // nullptr: missing or null

  std::shared_ptr<const boost::json::value> root_;
  const boost::json::value* place_ = nullptr;
};

// Writes one object. Strings must be UTF-8: Error(invalid_argument) says which field is not.
class JsonObject {
 public:
  JsonObject& add(std::string_view name, std::string_view text);
  JsonObject& add(std::string_view name, const char* text) {
    return add(name, std::string_view(text));
  }
  JsonObject& add(std::string_view name, int64_t number);
  JsonObject& add(std::string_view name, double number);
  JsonObject& add(std::string_view name, bool flag);
  JsonObject& add(std::string_view name, const std::vector<std::string>& texts);
  JsonObject& add(std::string_view name, const std::map<std::string, std::string>& members);
  JsonObject& add(std::string_view name, const JsonObject& object);
  JsonObject& add(std::string_view name, const std::vector<JsonObject>& objects);
  JsonObject& add(std::string_view name, const Json& value);
  JsonObject& add(std::string_view name, const std::vector<Json>& values);
  // Arbitrary bytes: "name" when they are UTF-8, otherwise base64 in "name_b64".
  JsonObject& add_bytes(const std::string& name, const std::string& bytes);
  JsonObject& add_bytes(const std::string& name, const std::vector<std::string>& list);
  bool empty() const { return fields_.empty(); }
  std::string str() const { return "{" + fields_ + "}"; }

 private:
  std::string& field(std::string_view name);
  std::string fields_;
};

}  // namespace moorage::cli
