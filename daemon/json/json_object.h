// Builds one JSON object and leaves out unknown values.
#pragma once

#include <boost/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "daemon/json/json_fields.h"
#include "daemon/json/json_views.h"

namespace moorage::daemon {

using JsonObject = boost::json::object;

inline void put_bytes(JsonObject& object, const std::string& name, const std::string& bytes) {
  const std::string shown = lossy_utf8(bytes);
  object[name] = shown;
  if (shown != bytes) object[name + "_b64"] = base64_encode(bytes);
}

inline void put_byte_list(JsonObject& object, const std::string& name,
                          const std::vector<std::string>& list) {
  boost::json::array shown;
  boost::json::array encoded;
  bool all_shown = true;
  for (const auto& item : list) {
    const std::string text = lossy_utf8(item);
    all_shown = all_shown && text == item;
    shown.emplace_back(text);
    encoded.emplace_back(base64_encode(item));
  }
  object[name] = std::move(shown);
  if (!all_shown) object[name + "_b64"] = std::move(encoded);
}

inline void put_time(JsonObject& object, const std::string& name, int64_t wall_ms) {
  if (wall_ms > 0) object[name] = base::format_utc(wall_ms);
}

inline std::string text_of(const JsonObject& object) { return boost::json::serialize(object); }

template <typename List, typename Make>
boost::json::array array_of(const List& list, const Make& make) {
  boost::json::array array;
  for (const auto& one : list) array.emplace_back(make(one));
  return array;
}

template <typename Ids>
boost::json::array ids_of(const Ids& ids) {
  return array_of(ids, [](auto id) { return id.str(); });
}

inline boost::json::array texts_of(const std::vector<std::string>& texts) {
  return array_of(texts, [](const std::string& text) { return lossy_utf8(text); });
}

inline JsonObject free_object(const StoreSpace& space) {
  return {{"total_bytes", space.total_bytes}, {"free_bytes", space.free_bytes}};
}

inline JsonObject store_object(const StoreSpace& space) {
  return {{"total_bytes", space.total_bytes},
          {"used_bytes", space.used_bytes},
          {"free_bytes", space.free_bytes}};
}

JsonObject doing_object(const state_db::ExecRow& exec);
JsonObject blocked_object(const workspace::Blocked& blocked);
JsonObject use_object(const base::NetworkUse& use);

template <typename T>
void put_known(JsonObject& object, const std::string& name, const std::optional<T>& value) {
  if (value) object[name] = *value;
}

inline void put_text(JsonObject& object, const std::string& name, const std::string& text) {
  if (!text.empty()) object[name] = lossy_utf8(text);
}

}  // namespace moorage::daemon
