# ctest reads this when it runs: with MOORAGE_TEST_LONG (./check --all) some suites do much more. Otherwise short time
# limits detect a hanging test early.
if(DEFINED ENV{MOORAGE_TEST_LONG})
  set_tests_properties(e2e_deep_chains e2e_last_output e2e_last_output_docker e2e_snapshots e2e_snapshots_docker crash_power threats_shares
    threats_hostile_tree test_warden test_layers test_packs PROPERTIES TIMEOUT 7200)
  # They take most of an hour each: started last, they would run alone.
  set_tests_properties(threats_hostile_tree e2e_last_output e2e_last_output_docker PROPERTIES COST 3600)
endif()
