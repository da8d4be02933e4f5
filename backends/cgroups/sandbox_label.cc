#include "backends/cgroups/sandbox_label.h"

#include <boost/json.hpp>

#include "base/error.h"

namespace moorage::backends {
namespace {

namespace json = boost::json;

base::Protocols protocols_in(const json::object& label) {
  const json::value* oldest = label.if_contains("oldest");
  const json::value* newest = label.if_contains("newest");
  if (!oldest && !newest) return {};
  return {json::value_to<int>(label.at("oldest")), json::value_to<int>(label.at("newest"))};
}

std::optional<CgroupHierarchies> hierarchies_if_any() {
  try {
    return find_cgroups();
  } catch (const Error&) {
    return std::nullopt;  // no sandbox can run here then; `info` says why
  }
}

}  // namespace

void write_label(SandboxCgroup& group, const SandboxLabel& label) {
  group.set_label(json::serialize(json::object{{"pid", label.init.pid},
                                               {"start_ticks", label.init.start_ticks},
                                               {"directory", label.directory},
                                               {"oldest", label.protocols.oldest},
                                               {"newest", label.protocols.newest},
                                               {"release", label.release}}));
}

std::optional<SandboxLabel> read_label(const SandboxCgroup& group) {
  const auto text = group.label();
  if (!text) return std::nullopt;
  try {
    const json::value value = json::parse(*text);
    const json::object& label = value.as_object();
    SandboxLabel result;
    result.init = {json::value_to<int>(label.at("pid")),
                   json::value_to<uint64_t>(label.at("start_ticks"))};
    result.directory = json::value_to<std::string>(label.at("directory"));
    result.protocols = protocols_in(label);
    if (const json::value* release = label.if_contains("release")) {
      result.release = json::value_to<std::string>(*release);
    }
    return result;
  } catch (const std::exception& error) {
    throw Error(Code::corrupted,
                "the label of " + group.unified_path() + " is not valid: " + error.what());
  }
}

void refuse_foreign_sandboxes(const std::string& prefix) {
  const auto hierarchies = hierarchies_if_any();
  if (!hierarchies) return;
  for (const std::string& name : sandbox_cgroups(*hierarchies, prefix)) {
    const auto label = read_label(SandboxCgroup(*hierarchies, name));
    if (!label || !base::process_alive(label->init)) continue;
    if (base::common_protocol(base::kProtocols, label->protocols)) continue;
    throw Error(Code::unsupported,
                "sandbox " + name + " is running, was started by moorage " + label->release +
                    " and speaks " + to_string(label->protocols) + "; this is moorage " +
                    base::kRelease + ", which speaks " + to_string(base::kProtocols),
                "Nothing was changed; its commands continue. Start mooraged " + label->release +
                    " again; before an upgrade, stop its workspaces there (moorage stop NAME).");
  }
}

}  // namespace moorage::backends
