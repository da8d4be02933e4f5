#include "request.h"

#include <boost/json.hpp>

#include "base/error.h"

namespace moorage::launch {

Request parse_request(const std::string& text) {
  namespace json = boost::json;
  try {
    const json::value value = json::parse(text);
    auto string = [&](const char* key) { return json::value_to<std::string>(value.at(key)); };
    Request request;
    request.mode = string("mode");
    request.name = string("name");
    request.first_host_id = json::value_to<uint32_t>(value.at("first_host_id"));
    request.sudo = value.at("sudo").as_bool();
    request.nested_namespaces = value.at("nested_namespaces").as_bool();
    request.memory_bytes = json::value_to<uint64_t>(value.at("memory_bytes"));
    request.rootfs = string("rootfs");
    request.warden = string("warden");
    request.bootstrap = string("bootstrap");
    request.log = string("log");
    request.cgroup = string("cgroup");
    request.join = json::value_to<std::vector<std::string>>(value.at("join"));
    request.places = json::value_to<std::vector<std::string>>(value.at("places"));
    request.init_pid = json::value_to<int>(value.at("init_pid"));
    request.init_start_ticks = json::value_to<uint64_t>(value.at("init_start_ticks"));
    request.maps_ids = value.at("maps_ids").as_bool();
    request.host_usr = value.at("host_usr").as_bool();
    request.owner_id = json::value_to<uint32_t>(value.at("owner_id"));
    request.files =
        json::value_to<std::vector<std::pair<std::string, std::string>>>(value.at("files"));
    return request;
  } catch (const std::exception& error) {
    throw Error(Code::invalid_argument, std::string("not a launch request: ") + error.what());
  }
}

}  // namespace moorage::launch
