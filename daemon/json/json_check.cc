#include "daemon/json/json_check.h"

#include <boost/json.hpp>
#include <boost/json/basic_parser_impl.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "daemon/json/json_fields.h"

namespace moorage::daemon {
namespace {

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

}  // namespace

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

}  // namespace moorage::daemon
