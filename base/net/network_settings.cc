#include "base/net/network_settings.h"

#include <boost/describe.hpp>
#include <boost/json.hpp>

#include "base/error.h"

namespace moorage::base {

BOOST_DESCRIBE_ENUM(Verdict, allow, deny, deny_quietly)
BOOST_DESCRIBE_STRUCT(NetworkRule, (), (verdict, host, ports, reason, methods, path))
BOOST_DESCRIBE_STRUCT(NetworkPolicy, (),
                      (mode, open, open_ports, refused_by_operator, allowed_by_operator, own,
                       preset))
BOOST_DESCRIBE_ENUM(CredentialForm, bearer, basic, header, ssh_key)
BOOST_DESCRIBE_STRUCT(CredentialScope, (),
                      (credential, host, path, methods, form, field, user, port))
BOOST_DESCRIBE_ENUM(PushMode, refuse, ask, allow)
BOOST_DESCRIBE_STRUCT(PushPolicy, (), (mode, refs))
BOOST_DESCRIBE_STRUCT(ResolverSettings, (), (servers, hosts, host, reachable))
BOOST_DESCRIBE_STRUCT(ProxySettings, (), (addresses, port, authorization, no_proxy))
BOOST_DESCRIBE_STRUCT(NetworkLimits, (), (connections, rate_bytes, total_bytes))
BOOST_DESCRIBE_STRUCT(NetworkSettings, (),
                      (workspace, policy, credentials, push, resolver, proxy, limits))
BOOST_DESCRIBE_STRUCT(NetworkUse, (),
                      (connections, connected, names, bytes_in, bytes_out, refused, over_limit))
BOOST_DESCRIBE_ENUM(SightingKind, reached, refused, unreachable)
BOOST_DESCRIBE_STRUCT(Sighting, (), (serial, kind, host, port, why, quiet, cgroup, at_ms))

namespace {

template <typename T>
T read(std::string_view text, const char* what) {
  try {
    return boost::json::value_to<T>(boost::json::parse(text));
  } catch (const std::exception& error) {
    throw Error(Code::invalid_argument, std::string(what) + ": " + error.what());
  }
}

template <typename T>
std::string written(const T& value) {
  return boost::json::serialize(boost::json::value_from(value));
}

}  // namespace

std::string to_json(const NetworkSettings& settings) { return written(settings); }
std::string to_json(const NetworkUse& use) { return written(use); }
std::string to_json(const Sighting& sighting) { return written(sighting); }
std::string to_json(const std::vector<Sighting>& sightings) { return written(sightings); }

NetworkSettings read_network_settings(std::string_view json) {
  return read<NetworkSettings>(json, "not network settings");
}
NetworkUse read_network_use(std::string_view json) {
  return read<NetworkUse>(json, "not a network's use");
}
Sighting read_sighting(std::string_view json) { return read<Sighting>(json, "not a sighting"); }
std::vector<Sighting> read_sightings(std::string_view json) {
  return read<std::vector<Sighting>>(json, "not sightings");
}

}  // namespace moorage::base
