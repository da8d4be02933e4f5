// A JSON request body, read strictly: fields that no handler reads, wrong types, duplicate keys,
// more than 32 levels and bytes that are not UTF-8 are refused by name. So a request never means
// one thing to this reader and another to an earlier check, and a misspelled field is never
// ignored. Texts that may hold any bytes (paths, arguments) come as "name" or, in base64, as
// "name_b64".
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moorage::daemon {

inline constexpr size_t kMaxJsonDepth = 32;

class JsonFields {
 public:
  // An empty body is an empty object. Throws invalid_argument, as do all below.
  static JsonFields parse(std::string_view body);

  std::optional<std::string> text(const std::string& name);
  std::optional<std::string> given_text(const std::string& name);  // refuses an empty one
  std::string required_text(const std::string& name);
  std::optional<std::string> bytes(const std::string& name);  // name or name_b64
  std::string required_bytes(const std::string& name);
  std::optional<std::vector<std::string>> byte_list(const std::string& name);
  // A command: an array of words, or one string for the shell; may be empty.
  std::optional<std::vector<std::string>> command(const std::string& name);
  std::optional<int64_t> whole(const std::string& name, int64_t min, int64_t max);
  std::optional<double> number(const std::string& name);
  bool flag(const std::string& name);  // absent: false
  std::optional<bool> given_flag(const std::string& name);
  std::optional<std::map<std::string, std::string>> text_map(const std::string& name);
  // As text_map, with null for what is to be removed; absent: empty.
  std::map<std::string, std::optional<std::string>> text_changes(const std::string& name);
  std::optional<JsonFields> object(const std::string& name);
  // The caller must finish() each of them too.
  std::optional<std::vector<JsonFields>> objects(const std::string& name);
  // Refuses fields that were not read. Call it before doing anything.
  void finish() const;

 private:
  struct State;
  explicit JsonFields(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// RFC 4648, with padding. decode returns nothing if malformed.
std::string base64_encode(std::string_view bytes);
std::optional<std::string> base64_decode(std::string_view text);

}  // namespace moorage::daemon
