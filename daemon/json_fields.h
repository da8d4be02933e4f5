// A JSON request body, read strictly: what a handler does not ask for is refused by name, as are
// wrong types, duplicate keys, more than 32 levels, bytes that are not UTF-8. So a request can
// never say something else to this reader than to the check before it, and a misspelt field is
// never ignored. Texts that may hold any bytes (paths, arguments) are taken as "name" or, base64,
// as "name_b64".
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
  std::string required_text(const std::string& name);
  std::optional<std::string> bytes(const std::string& name);  // name or name_b64
  std::string required_bytes(const std::string& name);
  std::optional<std::vector<std::string>> byte_list(const std::string& name);
  // A command: an array of words, or one text for the shell; empty, too.
  std::optional<std::vector<std::string>> command(const std::string& name);
  std::optional<int64_t> whole(const std::string& name, int64_t min, int64_t max);
  std::optional<double> number(const std::string& name);
  bool flag(const std::string& name);  // absent: false
  std::optional<bool> given_flag(const std::string& name);
  std::optional<std::map<std::string, std::string>> text_map(const std::string& name);
  std::optional<JsonFields> object(const std::string& name);
  // Each has to be finished, too.
  std::optional<std::vector<JsonFields>> objects(const std::string& name);
  // Refuses what was not asked for. Call before anything is done.
  void finish() const;

 private:
  struct State;
  explicit JsonFields(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// RFC 4648, with padding. decode: nothing if malformed.
std::string base64_encode(std::string_view bytes);
std::optional<std::string> base64_decode(std::string_view text);

}  // namespace moorage::daemon
