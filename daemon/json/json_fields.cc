#include "daemon/json/json_fields.h"

#include <boost/beast/core/detail/base64.hpp>
#include <boost/json.hpp>
#include <boost/json/basic_parser_impl.hpp>
#include <set>

#include "base/error.h"
#include "base/spelling.h"

namespace moorage::daemon {
namespace {

constexpr size_t kMaxMeantBytes = 64;

using boost::json::error_code;
using boost::json::string_view;

// Boost.JSON silently keeps the last of two equal keys; this pass sees both.
class DuplicateKeys {
 public:
  static constexpr size_t max_object_size = SIZE_MAX;
  static constexpr size_t max_array_size = SIZE_MAX;
  static constexpr size_t max_key_size = SIZE_MAX;
  static constexpr size_t max_string_size = SIZE_MAX;

  const std::string& found() const { return found_; }

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code&) {
    open_.emplace_back();
    return true;
  }
  bool on_object_end(size_t, error_code&) {
    open_.pop_back();
    return true;
  }
  bool on_array_begin(error_code&) { return true; }
  bool on_array_end(size_t, error_code&) { return true; }
  bool on_key_part(string_view part, size_t, error_code&) {
    key_.append(part.data(), part.size());
    return true;
  }
  bool on_key(string_view part, size_t, error_code& error) {
    key_.append(part.data(), part.size());
    if (!open_.back().insert(key_).second) {
      found_ = key_;
      error = boost::json::error::extra_data;
      return false;
    }
    key_.clear();
    return true;
  }
  bool on_string_part(string_view, size_t, error_code&) { return true; }
  bool on_string(string_view, size_t, error_code&) { return true; }
  bool on_number_part(string_view, error_code&) { return true; }
  bool on_int64(int64_t, string_view, error_code&) { return true; }
  bool on_uint64(uint64_t, string_view, error_code&) { return true; }
  bool on_double(double, string_view, error_code&) { return true; }
  bool on_bool(bool, error_code&) { return true; }
  bool on_null(error_code&) { return true; }
  bool on_comment_part(string_view, error_code&) { return true; }
  bool on_comment(string_view, error_code&) { return true; }

 private:
  std::vector<std::set<std::string>> open_;
  std::string key_;
  std::string found_;
};

// One object, no duplicate keys, at most kMaxJsonDepth levels, valid UTF-8.
boost::json::value parse_strictly(std::string_view text) {
  boost::json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  boost::json::basic_parser<DuplicateKeys> keys(options);
  error_code error;
  keys.write_some(false, text.data(), text.size(), error);
  if (!keys.handler().found().empty()) {
    throw Error(Code::invalid_argument, "duplicate field '" + keys.handler().found() + "'");
  }
  error.clear();
  boost::json::value value = boost::json::parse({text.data(), text.size()}, error, {}, options);
  if (error == boost::json::error::too_deep) {
    throw Error(Code::invalid_argument,
                "the body is nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
  }
  if (error) throw Error(Code::invalid_argument, "the body is not JSON: " + error.message());
  if (!value.is_object()) throw Error(Code::invalid_argument, "the body must be a JSON object");
  return value;
}

std::string as_text(const boost::json::value& value, const std::string& name) {
  if (!value.is_string()) throw Error(Code::invalid_argument, name + " must be a string");
  const auto& text = value.get_string();
  return {text.data(), text.size()};
}

std::string as_decoded(const boost::json::value& value, const std::string& name) {
  auto bytes = base64_decode(as_text(value, name));
  if (!bytes) throw Error(Code::invalid_argument, name + " must be base64");
  return *bytes;
}

// The known field that was probably meant: "timeout" lacks the unit of timeout_ms; or a typo. The
// edit distance to a name as long as the body would take seconds.
std::optional<std::string> meant(const std::string& name, const std::set<std::string>& known) {
  if (name.size() > kMaxMeantBytes) return std::nullopt;
  const auto longer = known.lower_bound(name + "_");
  if (longer != known.end() && longer->starts_with(name + "_")) return *longer;
  return base::nearest_spelling(name, {known.begin(), known.end()});
}

}  // namespace

struct JsonFields::State {
  boost::json::object object;
  std::string prefix;  // "limits."
  std::set<std::string> asked;

  const boost::json::value* find(const std::string& name) {
    asked.insert(name);
    return object.if_contains(name);
  }
  // Null if it is absent; refused as "must be ..." if it is of another type.
  const boost::json::value* find(const std::string& name, bool (boost::json::value::*is)() const,
                                 const std::string& type) {
    const auto* value = find(name);
    if (value && !(value->*is)()) refuse(name, "must be " + type);
    return value;
  }
  [[noreturn]] void refuse(const std::string& name, const std::string& what) const {
    throw Error(Code::invalid_argument, prefix + name + " " + what);
  }
  std::string required(const std::string& name, const std::optional<std::string>& value) const {
    if (value) return *value;
    throw Error(Code::invalid_argument, "missing field '" + prefix + name + "'");
  }
  [[noreturn]] void refuse_both(const std::string& name) const {
    throw Error(Code::invalid_argument,
                "give " + prefix + name + " or " + prefix + name + "_b64, not both");
  }
};

JsonFields JsonFields::parse(std::string_view body) {
  auto state = std::make_shared<State>();
  if (!body.empty()) state->object = std::move(parse_strictly(body).get_object());
  return JsonFields(std::move(state));
}

std::optional<std::string> JsonFields::text(const std::string& name) {
  const auto* value = state_->find(name);
  if (!value) return std::nullopt;
  return as_text(*value, state_->prefix + name);
}

std::optional<std::string> JsonFields::given_text(const std::string& name) {
  auto given = text(name);
  if (given && given->empty())
    throw Error(Code::invalid_argument, name + " must not be empty",
                "leave it out for the default");
  return given;
}

std::string JsonFields::required_text(const std::string& name) {
  return state_->required(name, text(name));
}

std::optional<std::string> JsonFields::bytes(const std::string& name) {
  const auto* encoded = state_->find(name + "_b64");
  auto plain = text(name);
  if (encoded && plain) state_->refuse_both(name);
  return encoded ? as_decoded(*encoded, state_->prefix + name + "_b64") : plain;
}

std::string JsonFields::required_bytes(const std::string& name) {
  return state_->required(name, bytes(name));
}

std::optional<std::vector<std::string>> JsonFields::byte_list(const std::string& name) {
  const auto* encoded = state_->find(name + "_b64");
  const auto* plain = state_->find(name);
  if (encoded && plain) state_->refuse_both(name);
  const auto* value = encoded ? encoded : plain;
  if (!value) return std::nullopt;
  const std::string given = state_->prefix + name + (encoded ? "_b64" : "");
  if (!value->is_array())
    throw Error(Code::invalid_argument, given + " must be an array of strings");
  std::vector<std::string> list;
  for (const auto& item : value->get_array()) {
    const std::string one = given + "[" + std::to_string(list.size()) + "]";
    list.push_back(encoded ? as_decoded(item, one) : as_text(item, one));
  }
  return list;
}

std::optional<std::vector<std::string>> JsonFields::command(const std::string& name) {
  const auto* value = state_->find(name);
  if (!value || !value->is_string()) return byte_list(name);
  const std::string script = as_text(*value, state_->prefix + name);
  if (script.empty()) return std::vector<std::string>{};
  return std::vector<std::string>{"/bin/sh", "-c", script};
}

std::optional<int64_t> JsonFields::whole(const std::string& name, int64_t min, int64_t max) {
  const auto* value = state_->find(name);
  if (!value) return std::nullopt;
  // Numbers above INT64_MAX parse as unsigned and exceed any max.
  if (!value->is_int64() || value->get_int64() < min || value->get_int64() > max) {
    state_->refuse(name,
                   "must be an integer from " + std::to_string(min) + " to " + std::to_string(max));
  }
  return value->get_int64();
}

std::optional<double> JsonFields::number(const std::string& name) {
  const auto* value = state_->find(name, &boost::json::value::is_number, "a number");
  if (!value) return std::nullopt;
  return value->to_number<double>();
}

bool JsonFields::flag(const std::string& name) { return given_flag(name).value_or(false); }

std::optional<bool> JsonFields::given_flag(const std::string& name) {
  const auto* value = state_->find(name, &boost::json::value::is_bool, "true or false");
  if (!value) return std::nullopt;
  return value->get_bool();
}

std::optional<std::map<std::string, std::string>> JsonFields::text_map(const std::string& name) {
  const auto* value = state_->find(name, &boost::json::value::is_object, "an object of strings");
  if (!value) return std::nullopt;
  std::map<std::string, std::string> map;
  for (const auto& [key, item] : value->get_object()) {
    const std::string full = state_->prefix + name + "." + std::string(key.data(), key.size());
    map.emplace(std::string(key.data(), key.size()), as_text(item, full));
  }
  return map;
}

std::map<std::string, std::optional<std::string>> JsonFields::text_changes(
    const std::string& name) {
  std::map<std::string, std::optional<std::string>> changes;
  const auto* value =
      state_->find(name, &boost::json::value::is_object, "an object of strings and nulls");
  if (!value) return changes;
  for (const auto& [key, item] : value->get_object()) {
    const std::string text(key.data(), key.size());
    std::optional<std::string> wanted;
    if (!item.is_null()) wanted = as_text(item, state_->prefix + name + "." + text);
    changes.emplace(text, std::move(wanted));
  }
  return changes;
}

std::optional<JsonFields> JsonFields::object(const std::string& name) {
  const auto* value = state_->find(name, &boost::json::value::is_object, "an object");
  if (!value) return std::nullopt;
  return JsonFields(
      std::make_shared<State>(State{value->get_object(), state_->prefix + name + ".", {}}));
}

std::optional<std::vector<JsonFields>> JsonFields::objects(const std::string& name) {
  const auto* value = state_->find(name, &boost::json::value::is_array, "an array of objects");
  if (!value) return std::nullopt;
  std::vector<JsonFields> list;
  for (const auto& item : value->get_array()) {
    if (!item.is_object()) state_->refuse(name, "must be an array of objects");
    const std::string prefix = state_->prefix + name + "[" + std::to_string(list.size()) + "].";
    list.push_back(JsonFields(std::make_shared<State>(State{item.get_object(), prefix, {}})));
  }
  return list;
}

void JsonFields::finish() const {
  for (const auto& [key, value] : state_->object) {
    const std::string name(key.data(), key.size());
    if (!state_->asked.contains(name)) {
      const auto known = meant(name, state_->asked);
      throw Error(Code::invalid_argument,
                  "unknown field '" + state_->prefix + name + "'" +
                      (known ? "; did you mean " + state_->prefix + *known + "?" : ""));
    }
  }
}

std::string base64_encode(std::string_view bytes) {
  namespace base64 = boost::beast::detail::base64;
  std::string text(base64::encoded_size(bytes.size()), '\0');
  text.resize(base64::encode(text.data(), bytes.data(), bytes.size()));
  return text;
}

std::optional<std::string> base64_decode(std::string_view text) {
  namespace base64 = boost::beast::detail::base64;
  std::string bytes(base64::decoded_size(text.size()) + 3, '\0');
  const auto [written, read] = base64::decode(bytes.data(), text.data(), text.size());
  bytes.resize(written);
  // Beast stops at the padding or at an invalid character; encoding again detects a cut text.
  if (base64_encode(bytes) != text) return std::nullopt;
  return bytes;
}

}  // namespace moorage::daemon
